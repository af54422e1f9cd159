package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/dev/chaos"
	"belay.run/dev/redisd"
	"belay.run/internal/dedup"
)

const (
	// localHits and freshClaims are how many calls one measurement takes.
	localHits   = 200_000
	freshClaims = 2_000
	batchSize   = 1_000
	// mixed is how many claims are made at a hit rate of nine in ten.
	mixed = 20_000
	// roundTrip is what a link to a Redis in another room adds.
	roundTrip = time.Millisecond
	window    = time.Hour
)

// dedupBench is what claims are measured on: a Redis on this machine, and a slow
// link to it.
type dedupBench struct {
	server *redisd.Server
	link   *chaos.Proxy
	addr   string
	rdb    *redis.Client
	// far is rdb over the slow link.
	far    *redis.Client
	claims *dedup.Claims
	remote *dedup.Claims
	serial int
}

// openDedup measures claims beside bare commands on the same Redis, and beside
// the algorithm that is commonly published.
func openDedup(ctx context.Context) ([]subject, func() error, error) {
	d := &dedupBench{}
	if err := d.open(ctx); err != nil {
		return nil, nil, errors.Join(err, d.close())
	}
	const published = "GET, then SETEX, behind a local cache: the algorithm commonly published"
	held := &drills{bench: d, sum: map[bool]*chaos.Result{}}
	return []subject{
		{"claim_local_hit", "ns", "the same duplicate answered by Redis", d.localHit, d.remoteHit},
		{"claim_fresh", "µs", "a bare SET NX PX on the same Redis", d.freshClaim, d.setNX},
		{"claim_batch_1000", "ms", "1,000 claims one by one, both at a round trip of 1 ms", d.batch(true), d.oneByOne(true)},
		{"claim_batch_1000_loopback", "ms", "1,000 claims one by one, both on loopback", d.batch(false), d.oneByOne(false)},
		{"mean_overhead", "µs", published + ", at a hit rate of 90 % too (it claims 320 µs)", d.mix(d.ours()), d.mix(d.published())},
		{"race_double_executions", "runs", published + "; 64 racers in 4 processes, 1,000 keys", d.race(false), d.race(true)},
		{"drill_recall", "%", published, held.hold(false), held.hold(true)},
		{"drill_precision", "%", published, held.precision(false), held.precision(true)},
	}, d.close, nil
}

func (d *dedupBench) open(ctx context.Context) error {
	var err error
	if d.server, err = redisd.Start(ctx, redisd.Options{}); err != nil {
		return err
	}
	u, err := url.Parse(d.server.URL)
	if err != nil {
		return fmt.Errorf("reading the address of Redis: %w", err)
	}
	d.addr = u.Host
	if d.link, err = chaos.NewProxy(d.addr); err != nil {
		return err
	}
	if err := d.link.Delay(roundTrip); err != nil {
		return err
	}
	d.rdb = redis.NewClient(&redis.Options{Addr: d.addr})
	d.far = redis.NewClient(&redis.Options{Addr: d.link.Addr()})
	if d.claims, err = dedup.Open(d.rdb, dedup.Options{Tier: true}); err != nil {
		return err
	}
	d.remote, err = dedup.Open(d.far, dedup.Options{})
	return err
}

func (d *dedupBench) close() error {
	var errs []error
	for _, c := range []*dedup.Claims{d.claims, d.remote} {
		if c != nil {
			c.Close()
		}
	}
	for _, c := range []*redis.Client{d.rdb, d.far} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if d.link != nil {
		d.link.Close()
	}
	if d.server != nil {
		errs = append(errs, d.server.Stop())
	}
	return errors.Join(errs...)
}

// claim asks for a key that nothing else has asked for.
func (d *dedupBench) claim() dedup.Claim {
	d.serial++
	return claimOf(fmt.Sprintf("key-%d", d.serial))
}

// claimOf asks for a key, for a new run.
func claimOf(name string) dedup.Claim {
	run := rand.Text()
	return dedup.Claim{
		Key:     dedup.Key{Tenant: "bench", Project: "p", Pipeline: "deploy", Name: name},
		Owner:   dedup.Owner{RunKey: run, WorkflowID: run, RunID: run},
		Request: dedup.Request{ID: run, Sender: "bench"},
	}
}

// completed makes a claim that is completed, and known to be so by the tier.
func (d *dedupBench) completed(ctx context.Context) (dedup.Claim, error) {
	c := d.claim()
	v, err := d.claims.Claim(ctx, c)
	if err != nil {
		return c, err
	}
	err = d.claims.Settle(ctx, dedup.Settlement{
		Held: dedup.Held{Key: c.Key, Owner: c.Owner, Token: v.Record.Token}, State: dedup.Completed, Window: window,
	})
	return claimOf(c.Key.Name), err
}

// awaitLocal waits until the tier answers for a claim.
func (d *dedupBench) awaitLocal(ctx context.Context) (dedup.Claim, error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the local tier did not come up"))
	defer cancel()
	for ctx.Err() == nil {
		c, err := d.completed(ctx)
		if err != nil {
			return c, err
		}
		v, err := d.claims.Claim(ctx, c)
		if err != nil || v.Local {
			return c, err
		}
	}
	return dedup.Claim{}, context.Cause(ctx)
}

func (d *dedupBench) localHit(ctx context.Context) (float64, error) {
	c, err := d.awaitLocal(ctx)
	if err != nil {
		return 0, err
	}
	return perCall(localHits, time.Nanosecond, func() error {
		v, err := d.claims.Claim(ctx, c)
		if err == nil && !v.Local {
			err = errors.New("the local tier went off")
		}
		return err
	})
}

func (d *dedupBench) remoteHit(ctx context.Context) (float64, error) {
	c, err := d.completed(ctx)
	if err != nil {
		return 0, err
	}
	plain, err := dedup.Open(d.rdb, dedup.Options{})
	if err != nil {
		return 0, err
	}
	defer plain.Close()
	return perCall(freshClaims, time.Nanosecond, func() error {
		_, err := plain.Claim(ctx, c)
		return err
	})
}

func (d *dedupBench) freshClaim(ctx context.Context) (float64, error) {
	return perCall(freshClaims, time.Microsecond, func() error {
		v, err := d.claims.Claim(ctx, d.claim())
		if err == nil && !v.Decision.Runs() {
			err = fmt.Errorf("a fresh claim was answered %s", v.Decision)
		}
		return err
	})
}

func (d *dedupBench) setNX(ctx context.Context) (float64, error) {
	return perCall(freshClaims, time.Microsecond, func() error {
		d.serial++
		return d.rdb.SetNX(ctx, fmt.Sprintf("bare-%d", d.serial), rand.Text(), window).Err()
	})
}

// side is the claims on loopback, or over the slow link.
func (d *dedupBench) side(far bool) *dedup.Claims {
	if far {
		return d.remote
	}
	return d.claims
}

func (d *dedupBench) batch(far bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		claims := make([]dedup.Claim, batchSize)
		for i := range claims {
			claims[i] = d.claim()
		}
		return perCall(1, time.Millisecond, func() error {
			_, err := d.side(far).ClaimBatch(ctx, claims)
			return err
		})
	}
}

func (d *dedupBench) oneByOne(far bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		return perCall(1, time.Millisecond, func() error {
			for range batchSize {
				if _, err := d.side(far).Claim(ctx, d.claim()); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// mixer makes claims of which nine in ten are duplicates that are known here.
type mixer struct {
	known func(context.Context) (dedup.Claim, error)
	claim func(context.Context, dedup.Claim) (dedup.Verdict, error)
}

func (d *dedupBench) ours() mixer { return mixer{d.awaitLocal, d.claims.Claim} }

func (d *dedupBench) published() mixer {
	p := chaos.NewPublished(d.rdb)
	return mixer{
		func(ctx context.Context) (dedup.Claim, error) {
			c := d.claim()
			_, err := p.Claim(ctx, c)
			return c, err
		},
		p.Claim,
	}
}

// mix measures the mean of a mix of claims.
func (d *dedupBench) mix(m mixer) func(context.Context) (float64, error) {
	const hits = 10 // all but one of them
	return func(ctx context.Context) (float64, error) {
		known, err := m.known(ctx)
		if err != nil {
			return 0, err
		}
		i := 0
		return perCall(mixed, time.Microsecond, func() error {
			c := known
			if i++; i%hits == 0 {
				c = d.claim()
			}
			_, err := m.claim(ctx, c)
			return err
		})
	}
}

// perCall is how many units one of n calls takes.
func perCall(n int, unit time.Duration, call func() error) (float64, error) {
	began := time.Now()
	for range n {
		if err := call(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began)) / float64(n) / float64(unit), nil
}
