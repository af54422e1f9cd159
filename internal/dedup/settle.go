package dedup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Renew prolongs the lease of a claim that its owner holds, from now by Redis's
// clock; 0 is a claim without one. It puts back what Redis has lost. It returns
// [ErrNotOwner] where the claim is another's, was released or has ended.
func (c *Claims) Renew(ctx context.Context, r Record, lease time.Duration) error {
	args, err := grant(Held{Key: r.Key, Owner: r.Owner, Token: r.Token}, &r)
	if err != nil {
		return err
	}
	got, err := c.run(ctx, renewScript, []string{r.Key.redisKey()}, append(args, lease.Microseconds())...)
	if err == nil {
		_, err = granted(got)
	}
	if err != nil {
		return fmt.Errorf("renewing %s: %w", r.Key, fault(ctx, err))
	}
	return nil
}

// Settle ends a claim. It returns [ErrNotOwner] where it is another's or has
// ended otherwise; to repeat the same end does no harm.
func (c *Claims) Settle(ctx context.Context, s Settlement) error {
	q, err := s.call()
	if err != nil {
		return err
	}
	asked := c.tier.ask()
	got, err := c.run(ctx, settleScript, q.keys, q.args...)
	if err == nil {
		err = c.settled(asked, got)
	}
	if err != nil {
		return fmt.Errorf("settling %s: %w", s.Key, fault(ctx, err))
	}
	return nil
}

// call is a settlement as it is put to Redis.
func (s *Settlement) call() (call, error) {
	if !s.State.ends() {
		return call{}, fmt.Errorf("settling %s: no claim ends as %q", s.Key, s.State)
	}
	result, err := s.Result.encode()
	if err != nil {
		return call{}, fmt.Errorf("settling %s: %w", s.Key, err)
	}
	args, err := grant(s.Held, s.Grant)
	if err != nil {
		return call{}, err
	}
	died := ""
	if s.Died {
		died = "1"
	}
	args = append(args, string(s.State), s.window().Microseconds(), result, died)
	return call{keys: []string{s.Key.redisKey()}, args: args}, nil
}

// settled keeps in the tier what a settlement made.
func (c *Claims) settled(asked asked, got []any) error {
	now, err := granted(got)
	if err != nil {
		return err
	}
	if len(got) != 3 {
		return errDamaged
	}
	r, err := decode(got[2])
	if err == nil {
		c.tier.keep(asked, r, now)
	}
	return err
}

// grant is what the scripts need to know of a claim as it was granted, to put it
// back where Redis has lost it. Without a record it is as good as can be guessed.
func grant(h Held, r *Record) ([]any, error) {
	full := 1
	if r == nil {
		full, r = 0, &Record{Key: h.Key, Owner: h.Owner, Token: h.Token, ClaimedAt: time.UnixMicro(h.Token)}
	}
	doc, err := document{h.Key, h.Owner, r.Request, r.Fingerprint}.encode()
	if err != nil {
		return nil, err
	}
	return []any{
		h.Owner.who(), h.Token, full, r.Generation, doc, requestName(r.Request.ID), r.ClaimedAt.UnixMicro(),
	}, nil
}

// granted reads the answer of a script that only the owner may run.
func granted(got []any) (time.Time, error) {
	if len(got) < 2 {
		return time.Time{}, errDamaged
	}
	now, err := micros(got, 1)
	if err == nil && got[0] != "ok" {
		err = ErrNotOwner
	}
	return now, err
}

// ReleaseByOperator takes a claim away from whoever has it, and returns it as it
// was; nil if nothing was held. Its owner, should it live, cannot renew or settle
// it. It returns when no worker can answer from the old state any more.
func (c *Claims) ReleaseByOperator(ctx context.Context, key Key) (*Record, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	got, err := c.run(ctx, releaseScript, []string{key.redisKey()}, string(name))
	if err != nil {
		return nil, fmt.Errorf("releasing %s: %w", key, fault(ctx, err))
	}
	if len(got) < 2 {
		return nil, nil //nolint:nilnil // nothing was held
	}
	r, err := decode(got[1])
	if err != nil {
		return nil, fmt.Errorf("releasing %s: %w", key, err)
	}
	if err := c.announced(ctx, key, 0); err != nil {
		return nil, fmt.Errorf("announcing the release of %s: %w", key, fault(ctx, err))
	}
	return &r.Record, nil
}
