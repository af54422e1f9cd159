package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Claim asks to run. The claimer may run if the verdict's decision says so, under
// the verdict's token. To ask again, after an error or for a later attempt, is
// answered with Resumed and a higher token while the claim is held.
func (c *Claims) Claim(ctx context.Context, claim Claim) (Verdict, error) {
	q, err := newQuestion(claim)
	if err != nil {
		return Verdict{}, err
	}
	got, err := c.run(ctx, claimScript, q.keys, q.args...)
	if err != nil {
		return Verdict{}, fmt.Errorf("claiming %s: %w", claim.Key, fault(ctx, err))
	}
	v, _, err := q.answer(got)
	return v, err
}

// ClaimBatch makes many claims in one round trip per server. They are decided in
// order, so that of one key named twice the first is granted. On an error some
// may have been made: to repeat the batch does no harm.
func (c *Claims) ClaimBatch(ctx context.Context, claims []Claim) ([]Verdict, error) {
	verdicts := make([]Verdict, 0, len(claims))
	for _, claim := range claims {
		v, err := c.Claim(ctx, claim)
		if err != nil {
			return nil, err
		}
		verdicts = append(verdicts, v)
	}
	return verdicts, nil
}

// question is a claim as it is put to Redis.
type question struct {
	claim Claim
	keys  []string
	args  []any
}

func newQuestion(claim Claim) (question, error) {
	doc, err := document{Key: claim.Key, Owner: claim.Owner, Request: claim.Request}.encode()
	if err != nil {
		return question{}, err
	}
	if claim.Owner.RunKey == "" {
		return question{}, errors.New("a claim needs an owner")
	}
	key := claim.Key.redisKey()
	rerun, keyJSON := 0, ""
	if claim.Rerun {
		b, err := json.Marshal(claim.Key)
		if err != nil {
			return question{}, err
		}
		rerun, keyJSON = 1, string(b)
	}
	// What waits for a step's key claims it when that step fails: no request
	// comes too late for it.
	late := lateFor
	if claim.Key.Pipeline == "" {
		late = 0
	}
	var at int64
	if !claim.Request.At.IsZero() {
		at = claim.Request.At.UnixMicro()
	}
	return question{claim: claim, keys: []string{key}, args: []any{
		claim.Owner.who(), claim.Owner.RunKey, doc, requestName(claim.Request.ID), claim.Fingerprint,
		at, claim.Lease.Microseconds(), rerun, claim.Dead, late.Microseconds(),
		keepRequestFor.Milliseconds(), keepFor.Milliseconds(), "belay:{claims}", keyJSON,
	}}, nil
}

// answer reads what Redis says to it, and whether the record that blocks is the
// only one there ever was under its key.
func (q question) answer(got []any) (v Verdict, only bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("reading the claim of %s: %w", q.claim.Key, err)
		}
	}()
	if len(got) != 3 {
		return Verdict{}, false, errDamaged
	}
	word, ok := got[0].(string)
	now, err := micros(got, 1)
	if err != nil || !ok {
		return Verdict{}, false, errDamaged
	}
	v = Verdict{Decision: Decision(word), At: now}
	if v.Decision.Runs() {
		v.Record, err = q.held(got[2])
		return v, false, err
	}
	r, err := decode(got[2])
	if err != nil {
		return Verdict{}, false, err
	}
	v.Record = r.Record
	v.Mismatch = mismatch(q.claim.Fingerprint, r.Fingerprint)
	v.Expired = v.Decision == InFlight && r.Until != nil && !r.Until.After(now)
	return v, r.only, nil
}

// held is the record of a claim that its claimer holds.
func (q question) held(v any) (Record, error) {
	n, ok := v.([]any)
	if !ok || len(n) != 4 {
		return Record{}, errDamaged
	}
	token, ok1 := n[0].(int64)
	generation, err := number(n[1])
	claimed, err1 := micros(n, 2)
	until, err2 := micros(n, 3)
	if !ok1 {
		return Record{}, errDamaged
	}
	r := Record{
		Key: q.claim.Key, State: Running, Owner: q.claim.Owner, Request: q.claim.Request,
		Token: token, Generation: generation, Fingerprint: q.claim.Fingerprint, ClaimedAt: claimed,
	}
	if q.claim.Lease > 0 {
		r.Until = &until
	}
	return r, errors.Join(err, err1, err2)
}

// number reads an integer that scripts hand on as they found it.
func number(v any) (int, error) {
	switch v := v.(type) {
	case int64:
		return int(v), nil
	case string:
		return strconv.Atoi(v)
	}
	return 0, errDamaged
}

// mismatch reports whether two fingerprints tell of different inputs.
func mismatch(a, b string) bool { return a != "" && b != "" && a != b }
