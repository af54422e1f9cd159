package host

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
)

const (
	// claimSweepEvery is how often the claims are looked at.
	claimSweepEvery = 30 * time.Second
	// claimSweepWithin bounds one sweep. It is shorter than the lock is held.
	claimSweepWithin = 25 * time.Second
	claimSweepLock   = 29 * time.Second
	// claimSweepKey is the lock: one worker at a time. Two do no harm, but ask
	// Temporal twice.
	claimSweepKey = "belay:claim-sweep"
	// claimSweepAge is how old a claim is before anybody asks for its owner.
	claimSweepAge = time.Minute
	// claimSweepAtOnce is how many owners are asked for at one time.
	claimSweepAtOnce = 8
)

// claimSweep ends claims whose owners are dead: runs that were terminated, or
// that ended while Redis could not be told.
type claimSweep struct {
	rdb    redis.UniversalClient
	claims *dedup.Claims
	audit  *audit.Log
	alive  func(context.Context, dedup.Owner) liveness.Answer
	swept  func(dedup.State)
	host   string
	log    *zap.Logger
}

// run looks at all claims that are held, unless another worker does, and returns
// how many it ended.
func (s *claimSweep) run(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, claimSweepWithin)
	defer cancel()
	// The lock is left to expire, so that the next sweep is not at once.
	ours, err := s.rdb.SetNX(ctx, claimSweepKey, s.host, claimSweepLock).Result()
	if err != nil {
		return 0, fmt.Errorf("taking the sweep of claims: %w", err)
	}
	if !ours {
		return 0, nil
	}
	now, err := s.claims.Now(ctx)
	if err != nil {
		return 0, err
	}
	return s.all(ctx, now)
}

// all asks for the owners of all claims that are old enough. One that cannot be
// ended keeps no other from it.
func (s *claimSweep) all(ctx context.Context, now time.Time) (int, error) {
	alive := liveness.EachOnce(s.alive)
	var ended atomic.Int64
	g := errgroup.Group{}
	g.SetLimit(claimSweepAtOnce)
	var listed error
	for r, err := range s.claims.Running(ctx) {
		if err != nil {
			listed = err
			break
		}
		if !stale(&r, now) {
			continue
		}
		g.Go(func() error {
			answer := alive(ctx, r.Owner)
			if answer.Alive {
				return nil
			}
			if err := s.end(ctx, &r, answer); err != nil {
				return err
			}
			ended.Add(1)
			return nil
		})
	}
	err := errors.Join(listed, g.Wait())
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return int(ended.Load()), err
}

// stale reports whether it is worth asking for the owner of a claim: it has no
// lease, or its lease is over. A young one has an owner that just made it.
func stale(r *dedup.Record, now time.Time) bool {
	if r.Until != nil && r.Until.After(now) {
		return false
	}
	return now.Sub(r.ClaimedAt) >= claimSweepAge
}

// end settles a claim on behalf of its dead owner, as the owner's run ended.
func (s *claimSweep) end(ctx context.Context, r *dedup.Record, answer liveness.Answer) error {
	state := answer.State()
	window, why := time.Duration(0), "its run is gone"
	if state == dedup.Completed {
		// What the file says is not in the claim, so it is the longest that the
		// file would say by itself.
		window = durations.WindowDefault
	}
	if answer.Status != "" {
		why = "its run is over: " + string(answer.Status)
	}
	err := s.claims.Settle(ctx, dedup.Settlement{
		Held: dedup.Held{Key: r.Key, Owner: r.Owner, Token: r.Token}, State: state, Window: window, Died: true,
		Result: dedup.Result{Status: answer.Status, Summary: why},
	})
	switch {
	case errors.Is(err, dedup.ErrNotOwner):
		return nil // it was settled, or taken over, meanwhile
	case err != nil:
		return err
	}
	s.swept(state)
	s.log.Info("ended a claim whose owner is dead", zap.String("key", r.Key.String()),
		zap.String("run", r.Owner.RunKey), zap.String("workflow", r.Owner.WorkflowID), zap.String("node", r.Owner.Node), zap.String("state", string(state)), zap.String("why", why))
	// It has been logged where it cannot be written, and the claim is ended.
	_ = s.audit.Write(ctx, audit.Entry{
		Tenant: r.Key.Tenant, Project: r.Key.Project, Pipeline: pipelineOf(r), Key: r.Key.Name, Node: r.Owner.Node,
		Owner: r.Owner.WorkflowID, OwnerRun: r.Owner.RunID, By: "sweep of " + s.host, Decision: audit.Takeover,
		Delivery: "sweep/" + strconv.FormatInt(r.Token, 10), Tier: audit.TierTemporal, Reason: why,
	})
	return nil
}

// pipelineOf is the pipeline of a claim's owner, as far as its id says.
func pipelineOf(r *dedup.Record) string {
	if r.Key.Pipeline != "" {
		return r.Key.Pipeline
	}
	_, _, pipeline, _ := run.Scope(r.Owner.WorkflowID)
	return pipeline
}
