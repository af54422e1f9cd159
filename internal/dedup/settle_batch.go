package dedup

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// SettleBatch ends many claims in a round trip for each thousand and server, and
// one more for those that are no longer as they were granted. Each has its own
// error, as [Claims.Settle] has it; the error beside them says that Redis could not
// be asked, and that some may have ended: to repeat the batch does no harm.
func (c *Claims) SettleBatch(ctx context.Context, settlements []Settlement) ([]error, error) {
	errs := make([]error, len(settlements))
	asked := c.tier.ask()
	ended, err := c.finish(ctx, settlements)
	if err != nil {
		return nil, fmt.Errorf("settling %d keys: %w", len(settlements), fault(ctx, err))
	}
	var (
		open  []int
		calls []call
	)
	for i := range settlements {
		s := &settlements[i]
		if !ended[i].IsZero() {
			c.tier.keep(asked, s.ended(ended[i]), ended[i])
			continue
		}
		q, err := s.call()
		if err != nil {
			errs[i] = err
			continue
		}
		open, calls = append(open, i), append(calls, q)
	}
	answers, err := c.runAll(ctx, settleScript, calls)
	if err != nil {
		return nil, fmt.Errorf("settling %d keys: %w", len(calls), fault(ctx, err))
	}
	for n, i := range open {
		if err := c.settled(asked, answers[n]); err != nil {
			errs[i] = fmt.Errorf("settling %s: %w", settlements[i].Key, err)
		}
	}
	return errs, nil
}

// finish ends those that are as they were granted, as the first under their keys,
// and returns when; zero for the others.
func (c *Claims) finish(ctx context.Context, settlements []Settlement) ([]time.Time, error) {
	var (
		quick []int
		calls []call
	)
	for i := range settlements {
		if q, ok := settlements[i].quick(); ok {
			quick, calls = append(quick, i), append(calls, q)
		}
	}
	ended := make([]time.Time, len(settlements))
	answers, err := c.runQuick(ctx, finishScript, calls)
	if err != nil {
		return nil, err
	}
	for n, i := range quick {
		if answers[n] == nil {
			continue
		}
		if ended[i], err = micros(answers[n], 0); err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// quick is a settlement as finishScript takes it, which needs to know the claim as
// it was granted; false where it is for settleScript, or wrong.
func (s *Settlement) quick() (call, bool) {
	if s.Grant == nil || s.Grant.Request.ID != "" || s.Died || !s.State.ends() {
		return call{}, false
	}
	result, err := s.Result.encode()
	if err != nil {
		return call{}, false // settleScript's call says it
	}
	return call{keys: []string{s.Key.redisKey()}, args: []any{
		s.Owner.who(), s.Token, string(s.State), s.window().Microseconds(), result,
	}}, true
}

// ended is the claim of such a settlement as it has ended.
func (s *Settlement) ended(now time.Time) stored {
	until := now.Add(s.window().Truncate(time.Microsecond))
	r := stored{Record: *s.Grant, only: true}
	r.Request.Sender = cut(r.Request.Sender, maxSender)
	r.State, r.EndedAt, r.Until, r.Result = s.State, &now, &until, s.Result.bounded()
	r.Result.Outputs = maps.Clone(r.Result.Outputs) // the caller may go on with its own
	return r
}

// window is how long it blocks.
func (s *Settlement) window() time.Duration { return max(s.Window, 0) }
