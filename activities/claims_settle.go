package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// SettleRun ends the claim of a pipeline.
func (c *Claims) SettleRun(ctx context.Context, in SettleInput) (*Settled, error) {
	return c.settle(ctx, &in)
}

// SettleStep ends the claim of a step, once its node has ended over all attempts.
func (c *Claims) SettleStep(ctx context.Context, in SettleInput) (*Settled, error) {
	return c.settle(ctx, &in)
}

func (c *Claims) settle(ctx context.Context, in *SettleInput) (*Settled, error) {
	unstick(ctx, c.Client, c.Namespace)
	if c.Claims == nil {
		return &Settled{}, nil
	}
	record, err := c.held(ctx, in)
	if err != nil || record == nil {
		return &Settled{}, err
	}
	state := settledAs(in.Result.Status)
	if state == dedup.Completed {
		c.measure(ctx, in)
	}
	if err := c.offload(ctx, in); err != nil {
		return nil, err
	}
	err = c.Claims.Settle(ctx, dedup.Settlement{
		Held:  dedup.Held{Key: record.Key, Owner: record.Owner, Token: record.Token},
		State: state, Window: c.window(ctx, &in.Claiming), Result: in.Result, Grant: in.Record,
	})
	if errors.Is(err, dedup.ErrNotOwner) {
		return &Settled{Note: c.lostTo(ctx, in.Owner, in.Key)}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Settled{}, nil
}

// held is the claim to be settled: as it was granted, else, where the worker was
// lost that knew, as Redis has it. Nil means that there is nothing to settle.
func (c *Claims) held(ctx context.Context, in *SettleInput) (*dedup.Record, error) {
	if in.Record != nil {
		return in.Record, nil
	}
	record, err := c.Claims.Lookup(ctx, in.Key)
	if err != nil || record == nil || record.State != dedup.Running || !record.Owner.Same(in.Owner) {
		return nil, err
	}
	return record, nil
}

// settledAs is the state of a claim whose owner ended so.
func settledAs(s run.Status) dedup.State {
	switch {
	case s.OK(), s == run.Skipped:
		return dedup.Completed
	case s == run.Cancelled:
		return dedup.Canceled
	}
	return dedup.Failed
}

// lostTo says who holds a key now that was from's.
func (c *Claims) lostTo(ctx context.Context, from dedup.Owner, key dedup.Key) string {
	record, err := c.Claims.Lookup(ctx, key)
	switch {
	case err != nil || record == nil:
		return fmt.Sprintf("the claim of key %q was released by an operator", key.Name)
	case record.Owner.Same(from) && record.State == dedup.Completed:
		return fmt.Sprintf("key %q counts as completed: an attempt did the work, and Temporal heard of it too late", key.Name)
	}
	by := record.Owner.WorkflowID + "@" + record.Owner.RunID
	if record.Owner.Node != "" {
		by = record.Owner.Node + " of " + by
	}
	return fmt.Sprintf("the claim of key %q was taken over by %s", key.Name, by)
}

// measure remembers how long it took. Windows can do without.
func (c *Claims) measure(ctx context.Context, in *SettleInput) {
	if c.Durations == nil || in.Took <= 0 {
		return
	}
	if err := c.Durations.Add(ctx, in.subject(), in.Took); err != nil {
		c.Logger.Warn("a duration was not remembered", zap.Error(err))
	}
}

// offload puts outputs that are too large for a record into the store.
func (c *Claims) offload(ctx context.Context, in *SettleInput) error {
	size := 0
	for name, value := range in.Result.Outputs {
		size += len(name) + len(value)
	}
	if size <= dedup.MaxOutputs {
		return nil
	}
	text, err := json.Marshal(in.Result.Outputs)
	if err != nil {
		return fmt.Errorf("encoding outputs: %w", err)
	}
	key := "claims/" + in.Owner.RunKey + "/" + in.Owner.Node
	if _, err := c.Store.Put(ctx, key, bytes.NewReader(text), 0); err != nil {
		return fmt.Errorf("storing outputs of %s: %w", in.Owner.Node, err)
	}
	in.Result.Outputs, in.Result.OutputsRef = nil, key
	return nil
}

// outputs are those of a record, wherever they are.
func (c *Claims) outputs(ctx context.Context, r *dedup.Result) (outputs map[string]string, err error) {
	if r.OutputsRef == "" {
		return r.Outputs, nil
	}
	f, err := c.Store.Get(ctx, r.OutputsRef)
	if err != nil {
		return nil, fmt.Errorf("reading recorded outputs: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading recorded outputs: %w", err)
	}
	if err := json.Unmarshal(text, &outputs); err != nil {
		return nil, fmt.Errorf("reading recorded outputs: %w", err)
	}
	return outputs, nil
}
