package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Claim asks to run. The claimer may run if the verdict's decision says so, under
// the verdict's token. To ask again, after an error or for a later attempt, is
// answered with Resumed and a higher token while the claim is held. A rerun over
// a completed claim returns when no worker can answer from the old state.
func (c *Claims) Claim(ctx context.Context, claim Claim) (Verdict, error) {
	if v, ok := c.tier.answer(&claim); ok {
		return v, nil
	}
	q, err := newQuestion(claim)
	if err != nil {
		return Verdict{}, err
	}
	asked := c.tier.ask()
	got, err := c.run(ctx, claimScript, q.keys, q.args...)
	if err != nil {
		return Verdict{}, fmt.Errorf("claiming %s: %w", claim.Key, fault(ctx, err))
	}
	return c.conclude(ctx, q, asked, got)
}

// ClaimBatch makes many claims in a round trip for each thousand and server. They
// are decided in order, so that of one key named twice the first is granted. On
// an error some may have been made: to repeat the batch does no harm.
func (c *Claims) ClaimBatch(ctx context.Context, claims []Claim) ([]Verdict, error) {
	verdicts := make([]Verdict, len(claims))
	var (
		open []int
		qs   []question
	)
	for i := range claims {
		v, ok := c.tier.answer(&claims[i])
		if ok {
			verdicts[i] = v
			continue
		}
		q, err := newQuestion(claims[i])
		if err != nil {
			return nil, fmt.Errorf("claim %d: %w", i, err)
		}
		open, qs = append(open, i), append(qs, q)
	}
	asked := c.tier.ask()
	answers, err := c.decide(ctx, qs)
	if err != nil {
		return nil, fmt.Errorf("claiming %d keys: %w", len(qs), fault(ctx, err))
	}
	for n, i := range open {
		if verdicts[i], err = c.conclude(ctx, qs[n], asked, answers[n]); err != nil {
			return nil, err
		}
	}
	return verdicts, nil
}

// decide puts questions to Redis: first as claims of keys that nobody ever held.
func (c *Claims) decide(ctx context.Context, qs []question) ([][]any, error) {
	calls := make([]call, len(qs))
	for i := range qs {
		calls[i] = qs[i].quick()
	}
	answers, err := c.runQuick(ctx, grantScript, calls)
	if err != nil {
		return nil, err
	}
	var (
		open []int
		rest []call
	)
	for i := range qs {
		if answers[i] == nil {
			open, rest = append(open, i), append(rest, qs[i].call)
		}
	}
	others, err := c.runAll(ctx, claimScript, rest)
	if err != nil {
		return nil, err
	}
	for n, i := range open {
		answers[i] = others[n]
	}
	return answers, nil
}

// conclude reads an answer and does what it asks for.
func (c *Claims) conclude(ctx context.Context, q question, asked asked, got []any) (Verdict, error) {
	v, other, err := q.answer(got)
	if err != nil {
		return Verdict{}, fmt.Errorf("reading the claim of %s: %w", q.claim.Key, err)
	}
	if !v.Decision.Runs() {
		if v.Decision == Duplicate { // else it may be a run of the past
			c.tier.keep(asked, other, v.At)
		}
		return v, nil
	}
	if q.claim.Replicate {
		v.Replicated = c.replicated(ctx, q.keys[0])
	}
	if age := v.At.Sub(v.Record.ClaimedAt); other.announced && age < c.heardBy {
		if err := c.announced(ctx, q.claim.Key, age); err != nil {
			return Verdict{}, fmt.Errorf("announcing the rerun of %s: %w", q.claim.Key, fault(ctx, err))
		}
	}
	return v, nil
}

// question is a claim as it is put to Redis.
type question struct {
	claim Claim
	call
}

func newQuestion(claim Claim) (question, error) {
	doc, err := document{claim.Key, claim.Owner, claim.Request, claim.Fingerprint}.encode()
	if err != nil {
		return question{}, err
	}
	if claim.Owner.RunKey == "" {
		return question{}, errors.New("a claim needs an owner")
	}
	rerun := ""
	if claim.Rerun {
		b, err := json.Marshal(claim.Key)
		if err != nil {
			return question{}, err
		}
		rerun = string(b)
	}
	var at int64
	if !claim.Request.At.IsZero() {
		at = claim.Request.At.UnixMicro()
	}
	// What waits for a step's key claims it when that step fails: no request
	// comes too late for it.
	late := claim.Key.Pipeline != ""
	return question{claim: claim, call: call{keys: []string{claim.Key.redisKey()}, args: []any{
		claim.Owner.who(), doc, requestName(claim.Request.ID), claim.Lease.Microseconds(), at, rerun, claim.Dead, late,
	}}}, nil
}

// quick is the same as grantScript takes it.
func (q question) quick() call { return call{keys: q.keys, args: q.args[:4]} }

// answer reads what Redis says to it: the verdict, and the claim that blocks or,
// of a granted one, whether it was announced.
func (q question) answer(got []any) (Verdict, stored, error) {
	if len(got) == 1 {
		now, err := micros(got, 0)
		held := stored{Record: q.granted(now)}
		return Verdict{Decision: Granted, Record: held.Record, At: now}, held, err
	}
	if len(got) != 3 {
		return Verdict{}, stored{}, errDamaged
	}
	word, ok := got[0].(string)
	now, err := micros(got, 1)
	if err != nil || !ok {
		return Verdict{}, stored{}, errDamaged
	}
	v := Verdict{Decision: Decision(word), At: now}
	if v.Decision.Runs() {
		held, err := q.held(got[2])
		v.Record = held.Record
		return v, held, err
	}
	other, err := decode(got[2])
	v.Record = other.Record
	v.Mismatch = mismatch(q.claim.Fingerprint, other.Fingerprint)
	v.Expired = v.Decision == InFlight && other.Until != nil && !other.Until.After(now)
	return v, other, err
}

// held is the claim of its claimer, from token, generation, time of the claim and
// of the end of its lease, and whether it was announced.
func (q question) held(v any) (stored, error) {
	n, ok := v.([]any)
	if !ok || len(n) != 5 {
		return stored{}, errDamaged
	}
	token, ok := n[0].(int64)
	generation, ok1 := n[1].(int64)
	claimed, err := micros(n, 2)
	until, err1 := micros(n, 3)
	if !ok || !ok1 {
		return stored{}, errDamaged
	}
	r := q.granted(claimed)
	r.Token, r.Generation = token, int(generation)
	if q.claim.Lease > 0 {
		r.Until = &until
	}
	return stored{Record: r, announced: n[4] == int64(1)}, errors.Join(err, err1)
}

// granted is the claim as the first one under its key, at a time.
func (q question) granted(at time.Time) Record {
	r := Record{
		Key: q.claim.Key, State: Running, Owner: q.claim.Owner, Request: q.claim.Request,
		Token: at.UnixMicro(), Fingerprint: q.claim.Fingerprint, ClaimedAt: at,
	}
	if q.claim.Lease > 0 {
		until := at.Add(q.claim.Lease)
		r.Until = &until
	}
	return r
}

// mismatch reports whether two fingerprints tell of different inputs.
func mismatch(a, b string) bool { return a != "" && b != "" && a != b }
