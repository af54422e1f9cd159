package resource

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/internal/pause"
)

const (
	// LockLease is how long a lock is held without a renewal, and renewEvery
	// how often it is renewed.
	LockLease  = 30 * time.Second
	renewEvery = LockLease / 3
	// waiterLease is how long one who waits keeps the place in the queue
	// without asking, as long as those behind have asked, and settleFor how long one must have asked, without a
	// gap, before one takes a lock whose lease ran out: Redis may have been
	// away, for its holder as for everybody.
	waiterLease = 5 * time.Second
	settleFor   = renewEvery + 2*time.Second
	// The next in the queue asks often, the others now and then.
	askSoon  = 100 * time.Millisecond
	askLater = 500 * time.Millisecond
	// LockPatience is how long one waits for Redis.
	LockPatience = 5 * time.Minute
	// LockWait is how long one waits for the lock.
	LockWait = time.Hour
)

// LocksOptions are what locks need. All may be left out.
type LocksOptions struct {
	// Recovering reports whether Redis has lost its memory so lately that a
	// lock may be held of which it does not know. Defaults to never.
	Recovering func(context.Context) (bool, error)
	// Patience is how long one waits for Redis. Defaults to LockPatience.
	Patience time.Duration
	// Log is told of locks that were taken back. Defaults to no log.
	Log *zap.Logger
}

// Locks are named locks of a project, kept in Redis: one holder at a time, those
// who wait in the order in which they came, a lease, and a token that grows with
// every holder, by which what the lock protects can refuse a late one.
type Locks struct {
	LocksOptions

	rdb redis.UniversalClient
}

var (
	_ Kind   = (*Locks)(nil)
	_ Keeper = (*Locks)(nil)
)

// NewLocks returns the locks kept in Redis; without one nothing is ever granted.
func NewLocks(rdb redis.UniversalClient, o LocksOptions) *Locks {
	if o.Patience == 0 {
		o.Patience = LockPatience
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Recovering == nil {
		o.Recovering = func(context.Context) (bool, error) { return false, nil }
	}
	return &Locks{LocksOptions: o, rdb: rdb}
}

// Name is the kind's.
func (l *Locks) Name() string { return KindLock }

// Acquire waits for the lock, up to [LockWait]. One that stops waiting leaves the
// queue at once.
func (l *Locks) Acquire(ctx context.Context, e *Entry, ask Ask) (Grant, error) {
	if l.rdb == nil {
		return Grant{}, fmt.Errorf("the lock %s needs Redis, which %w: set REDIS_URL", e.Name, ErrUnavailable)
	}
	end := time.Now().Add(LockWait)
	for {
		a, err := l.patiently(ctx, e)
		if err != nil {
			return Grant{}, err
		}
		if a.token > 0 {
			e.ID = strconv.FormatInt(a.token, 10)
			return Grant{Env: map[string]string{EnvLockToken + EnvName(e.Name): e.ID}}, nil
		}
		if time.Now().After(end) {
			return Grant{}, fmt.Errorf("waited %s for the lock %s, which %s holds: it %w", LockWait, e.Name, a.holder, ErrUnavailable)
		}
		ask.Waiting(a.position, a.holder)
		wait := askLater
		if a.position <= 1 {
			wait = askSoon
		}
		if err := pause.For(ctx, wait); err != nil {
			return Grant{}, err
		}
	}
}

// patiently asks for the lock until Redis answers.
func (l *Locks) patiently(ctx context.Context, e *Entry) (lockAnswer, error) {
	for deadline := time.Now().Add(l.Patience); ; {
		a, err := l.ask(ctx, e)
		switch {
		case err == nil:
			return a, nil
		case ctx.Err() != nil:
			return lockAnswer{}, context.Cause(ctx)
		case time.Now().After(deadline):
			return lockAnswer{}, fmt.Errorf("the lock %s needs Redis, which %w: %w", e.Name, ErrUnavailable, err)
		}
		if err := pause.For(ctx, askLater); err != nil {
			return lockAnswer{}, err
		}
	}
}

// lockAnswer is a token where the lock is held, else a place in the queue.
type lockAnswer struct {
	token    int64
	position int
	holder   string
}

// ask asks once. While Redis may not know of a holder nothing is taken; since it
// may lose its memory in just that moment, one looks again when the lock is had.
func (l *Locks) ask(ctx context.Context, e *Entry) (lockAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	lost, err := l.Recovering(ctx)
	if err != nil {
		return lockAnswer{}, err
	}
	a, took, err := l.tryLock(ctx, e, lost)
	if err != nil || a.token == 0 {
		return a, err
	}
	if lost, err = l.Recovering(ctx); err != nil {
		return lockAnswer{}, err
	}
	if lost && took == "" {
		return lockAnswer{position: 1}, l.leave(ctx, e, true)
	}
	if took != "" {
		l.Log.Warn("a lock was taken back: its lease had run out", zap.String("lock", e.Name), zap.String("from", took))
	}
	return a, nil
}

// tryLock asks Redis. Wait keeps it from granting what it does not know to be free.
func (l *Locks) tryLock(ctx context.Context, e *Entry, wait bool) (a lockAnswer, took string, err error) {
	got, err := lockScript.Run(ctx, l.rdb, lockKeys(e), e.Holder(), e.who(),
		LockLease.Microseconds(), waiterLease.Microseconds(), settleFor.Microseconds(), wait).Slice()
	if err != nil {
		return lockAnswer{}, "", err
	}
	const fields = 3
	if len(got) != fields {
		return lockAnswer{}, "", fmt.Errorf("the lock answered %v", got)
	}
	token, err1 := strconv.ParseInt(fmt.Sprint(got[0]), 10, 64)
	position, err2 := strconv.Atoi(fmt.Sprint(got[1]))
	if err := errors.Join(err1, err2); err != nil {
		return lockAnswer{}, "", fmt.Errorf("the lock answered %v: %w", got, err)
	}
	other := fmt.Sprint(got[2])
	if token > 0 {
		return lockAnswer{token: token}, other, nil
	}
	return lockAnswer{position: position, holder: other}, "", nil
}

// Release gives the lock back, or the place in the queue.
func (l *Locks) Release(ctx context.Context, e *Entry) error {
	if l.rdb == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	return l.leave(ctx, e, false)
}

// leave gives the lock back; undo as if it had never been had.
func (l *Locks) leave(ctx context.Context, e *Entry, undo bool) error {
	if err := unlockScript.Run(ctx, l.rdb, lockKeys(e), e.Holder(), undo).Err(); err != nil {
		return fmt.Errorf("giving the lock %s back: %w", e.Name, err)
	}
	return nil
}

// Keep renews the lease. A Redis that cannot be reached takes nothing away; one
// that came back empty is told again.
func (l *Locks) Keep(ctx context.Context, e Entry, lost func(error)) {
	for wait := renewEvery; pause.For(ctx, wait) == nil; {
		mine, err := l.renew(ctx, &e)
		wait = renewEvery
		if err != nil {
			wait = time.Second
		} else if !mine {
			lost(fmt.Errorf("the lock %s is another's: its lease of %s ran out", e.Name, LockLease))
			return
		}
	}
}

func (l *Locks) renew(ctx context.Context, e *Entry) (mine bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	n, err := renewScript.Run(ctx, l.rdb, lockKeys(e), e.Holder(), e.who(), LockLease.Microseconds(), e.ID).Int()
	if err != nil {
		return false, fmt.Errorf("renewing the lock %s: %w", e.Name, err)
	}
	return n > 0, nil
}

// who is the holder as people know it.
func (e *Entry) who() string {
	return strings.TrimSpace(e.WorkflowID + " " + e.Node)
}
