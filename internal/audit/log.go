package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

// Defaults and bounds.
const (
	// EntriesDefault is how many entries of a tenant are kept.
	EntriesDefault = 50_000
	// TimeoutDefault bounds a write.
	TimeoutDefault = 2 * time.Second
	// maxText bounds each text of an entry.
	maxText = 1024
	// maxBacklog bounds the entries that wait for Redis to come back.
	maxBacklog = 1000
)

// ErrFull is returned where Redis has no memory left for an entry.
var ErrFull = errors.New("the Redis that keeps the audit is full: raise its maxmemory, " +
	"or lower what it holds; the policy must stay noeviction")

// Options say how an audit is kept.
type Options struct {
	// Entries is about how many entries of each tenant are kept. Defaults to
	// EntriesDefault.
	Entries int
	// Retention is how long an entry is kept; zero leaves that to others: it is
	// the workers' setting, and who only adds an entry does not know it.
	Retention time.Duration
	// Timeout bounds each write, with a client that heeds the deadlines of
	// contexts: an audit never holds up a run for longer. Defaults to
	// TimeoutDefault.
	Timeout time.Duration
	// Later keeps entries that could not be written until Flush writes them.
	// Only a process that calls Flush sets it.
	Later bool
	// Logger takes a line for each duplicate. Nil drops it.
	Logger *zap.Logger
	// Observe hears of each entry, and whether it was lost; it may be nil.
	Observe func(e *Entry, lost bool)
}

// Log is the audit. It is safe for concurrent use.
type Log struct {
	rdb  redis.UniversalClient
	opts Options
	log  *zap.Logger

	// flushing is held by whoever writes the backlog: one at a time, since an
	// entry leaves it only when it is written.
	flushing sync.Mutex

	mu      sync.Mutex
	backlog []Entry
	tenants map[string]bool
}

// New returns the audit that is kept in Redis.
func New(rdb redis.UniversalClient, opts Options) *Log {
	opts.Entries = cmp.Or(opts.Entries, EntriesDefault)
	opts.Timeout = cmp.Or(opts.Timeout, TimeoutDefault)
	return &Log{rdb: rdb, opts: opts, log: telemetry.OrNop(opts.Logger), tenants: make(map[string]bool)}
}

// Write adds an entry, once for each delivery of a request, and logs a duplicate
// that is new. It returns within the timeout whatever Redis does. An error has
// been logged and counted, and should not stop the run that the entry is about.
func (l *Log) Write(ctx context.Context, e Entry) error {
	e.clip()
	began := time.Now().UTC()
	fresh, err := l.add(ctx, &e)
	switch {
	case err != nil:
		if e.At.IsZero() {
			e.At = began
		}
		l.keep(e, err)
		return err
	case fresh:
		l.tell(&e)
	}
	return nil
}

// add writes an entry and reports whether its delivery is new.
func (l *Log) add(ctx context.Context, e *Entry) (fresh bool, err error) {
	text, err := json.Marshal(e)
	if err != nil {
		return false, fmt.Errorf("encoding an audit entry: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.Timeout)
	defer cancel()
	n, err := writeScript.Run(ctx, l.rdb, []string{streamKey(e.Tenant), seenKey(e.Tenant)},
		e.mark(), text, l.opts.Entries, l.opts.Retention.Milliseconds(),
		entryCount(e).field(), entryCount(e).other().field(), maxFields,
		countsPrefix(e.Tenant), countsKept.Milliseconds(), daysPrefix(e.Tenant), daysKept.Milliseconds(),
	).Int64()
	if err != nil {
		return false, fmt.Errorf("writing an audit entry: %w", explain(err))
	}
	l.enlist(ctx, e.Tenant, n == 1)
	return n > 0, nil
}

// enlist notes that a tenant has a stream: once in this process, and again where
// the stream is new, since Redis may have lost its memory. The entry is written
// all the same where that fails, and the next one of the tenant tries again.
func (l *Log) enlist(ctx context.Context, tenant string, again bool) {
	l.mu.Lock()
	known := l.tenants[tenant]
	l.mu.Unlock()
	if known && !again {
		return
	}
	err := l.rdb.SAdd(ctx, tenantsKey, tenant).Err()
	if err != nil {
		l.log.Warn("could not note a tenant of the audit; its next entry tries again",
			zap.String("tenant", tenant), zap.Error(explain(err)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenants[tenant] = err == nil
}

// explain gives errors of Redis that people can do something about their words.
func explain(err error) error {
	if strings.HasPrefix(err.Error(), "OOM ") || strings.Contains(err.Error(), "-OOM ") {
		return fmt.Errorf("%w (%w)", ErrFull, err)
	}
	return err
}

// tell logs and counts an entry that was written.
func (l *Log) tell(e *Entry) {
	if l.opts.Observe != nil {
		l.opts.Observe(e, false)
	}
	fields := []zap.Field{
		zap.String("tenant", e.Tenant), zap.String("project", e.Project), zap.String("pipeline", e.Pipeline),
		zap.String("key", e.Key), zap.String("run", e.Run), zap.String("node", e.Node),
		zap.String("owner", e.Ref()), zap.String("by", e.By), zap.String("root_cause", string(e.RootCause)),
		zap.String("decision", string(e.Decision)), zap.String("request_id", e.RequestID), zap.String("tier", e.Tier),
	}
	if e.Decision.Blocked() {
		l.log.Warn("Duplicate task detected", fields...)
		return
	}
	l.log.Info("claim audited", append(fields, zap.String("reason", e.Reason))...)
}

// keep puts an entry aside that could not be written, or gives it up.
func (l *Log) keep(e Entry, err error) {
	l.mu.Lock()
	lost := !l.opts.Later || len(l.backlog) >= maxBacklog
	if !lost {
		l.backlog = append(l.backlog, e)
	}
	l.mu.Unlock()
	if lost {
		l.lose(&e)
	}
	l.log.Warn("could not write an audit entry", zap.Error(err), zap.Bool("lost", lost), zap.Any("entry", e))
}

func (l *Log) lose(e *Entry) {
	if l.opts.Observe != nil {
		l.opts.Observe(e, true)
	}
}

// Flush writes the entries that were put aside, the oldest first, and stops at
// the first that still cannot be written.
func (l *Log) Flush(ctx context.Context) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	for {
		l.mu.Lock()
		if len(l.backlog) == 0 {
			l.backlog = nil
			l.mu.Unlock()
			return nil
		}
		e := l.backlog[0]
		l.mu.Unlock()
		fresh, err := l.add(ctx, &e)
		if err != nil {
			return err
		}
		l.mu.Lock()
		l.backlog = l.backlog[1:]
		l.mu.Unlock()
		if fresh {
			l.tell(&e)
		}
	}
}

// clip bounds the texts of an entry: some of them come from anywhere.
func (e *Entry) clip() {
	for _, s := range []*string{
		&e.Tenant, &e.Project, &e.Pipeline, &e.Key, &e.Run, &e.Node, &e.Owner, &e.OwnerRun,
		&e.By, &e.RequestID, &e.Delivery, &e.Tier, &e.Reason,
	} {
		if len(*s) > maxText {
			*s = strings.ToValidUTF8((*s)[:maxText], "") + "…"
		}
	}
}
