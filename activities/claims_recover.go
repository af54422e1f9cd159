package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/pause"
	"belay.run/internal/run"
)

// ClaimQuery is the query that a pipeline with a key answers with its claim, a
// *dedup.Record, null while it has none: with it a claim that Redis has lost is
// put back.
const ClaimQuery = "claim"

// restore puts back what Redis has lost of a key, while that may be: the claim of
// a run that is open, which for a minute may not be back yet, or that of one which
// completed inside its window. Temporal knows of both.
func (c *Claims) restore(ctx context.Context, in *ClaimRunInput) error {
	since, lost, err := c.Claims.Recovering(ctx)
	if err != nil {
		return err
	}
	if lost {
		open, err := c.list(ctx, keyQuery(&in.Claiming)+" AND ExecutionStatus = 'Running'")
		if err != nil {
			return err
		}
		for _, info := range open {
			if owner := ownerOf(info); owner.RunKey != in.Owner.RunKey {
				if err := c.restoreOpen(ctx, owner); err != nil {
					return err
				}
			}
		}
	}
	return c.restoreCompleted(ctx, in, since)
}

// restoreOpen asks an open run for its claim, and puts that back.
func (c *Claims) restoreOpen(ctx context.Context, owner dedup.Owner) error {
	var record *dedup.Record
	resp, err := c.Client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: owner.WorkflowID, RunID: owner.RunID, QueryType: ClaimQuery,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if err == nil && resp.QueryRejected != nil {
		return nil // it has closed meanwhile
	}
	if err == nil {
		err = resp.QueryResult.Get(&record)
	}
	if err != nil {
		return fmt.Errorf("asking run %s for its claim: %w", owner.WorkflowID, err)
	}
	if record == nil {
		return nil
	}
	c.Logger.Info("putting a claim back that Redis has lost", zap.String("key", record.Key.Name), zap.String("run", owner.RunKey), zap.String("workflow", owner.WorkflowID))
	if err := c.Claims.Renew(ctx, *record, 0); err != nil && !errors.Is(err, dedup.ErrNotOwner) {
		return err
	}
	return nil
}

// restoreCompleted puts back the claim of the run that completed last, for what
// is left of its window, where Redis does not remember all of that.
func (c *Claims) restoreCompleted(ctx context.Context, in *ClaimRunInput, since time.Time) error {
	window := c.window(ctx, &in.Claiming)
	now := time.Now() // a query of Temporal's, by its clock or nearly so
	if since.Before(now.Add(-window)) {
		return nil
	}
	// What Redis knows of the key came after the loss: a failure since then, or a
	// release by an operator, stands.
	if known, err := c.Claims.Last(ctx, in.Key); err != nil || known != nil {
		return err
	}
	closed, err := c.list(ctx, keyQuery(&in.Claiming)+" AND ExecutionStatus = 'Completed' AND BelayStatus = "+
		quote(string(run.Succeeded))+" AND CloseTime > "+quote(now.Add(-window).UTC().Format(time.RFC3339Nano)))
	if err != nil || len(closed) == 0 {
		return err
	}
	last := closed[0]
	for _, info := range closed {
		if info.GetCloseTime().AsTime().After(last.GetCloseTime().AsTime()) {
			last = info
		}
	}
	owner := ownerOf(last)
	if owner.RunKey == in.Owner.RunKey {
		return nil
	}
	v, err := c.Claims.Claim(ctx, dedup.Claim{Key: in.Key, Owner: owner, Request: dedup.Request{ID: owner.RunKey}})
	if err != nil || !v.Decision.Runs() {
		return err // something is known of the key after all
	}
	err = c.Claims.Settle(ctx, dedup.Settlement{
		Held:  dedup.Held{Key: in.Key, Owner: owner, Token: v.Record.Token},
		State: dedup.Completed, Window: window - now.Sub(last.GetCloseTime().AsTime()),
		Result: dedup.Result{Status: run.Succeeded},
	})
	if err != nil && !errors.Is(err, dedup.ErrNotOwner) {
		return err
	}
	return nil
}

// RestoreClaims puts back the claims of all open runs while Redis may have lost
// them. Steps put back their own with the renewals of their leases.
func RestoreClaims(ctx context.Context, c *Claims) error {
	_, lost, err := c.Claims.Recovering(ctx)
	if err != nil || !lost {
		return err
	}
	open, err := c.list(ctx, "WorkflowType = 'Pipeline' AND ExecutionStatus = 'Running' AND BelayDedupKey IS NOT NULL")
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range open {
		errs = append(errs, c.restoreOpen(ctx, ownerOf(info)))
	}
	return errors.Join(errs...)
}

// awaitOwners lets the owners of steps put back claims that Redis has lost,
// before another step claims in their place. Only runs that were open then can
// own any; where there is none, nothing is waited for.
func (c *Claims) awaitOwners(ctx context.Context, in *Claiming) error {
	const look = time.Second
	for {
		since, lost, err := c.Claims.Recovering(ctx)
		if err != nil || !lost {
			return err
		}
		if known, err := c.Claims.Lookup(ctx, in.Key); err != nil || known != nil {
			return err
		}
		older, err := c.listed(ctx, "WorkflowType = 'Pipeline' AND ExecutionStatus = 'Running' AND BelayTenant = "+quote(in.Key.Tenant)+
			" AND BelayProject = "+quote(in.Key.Project)+" AND StartTime < "+quote(since.UTC().Format(time.RFC3339Nano)))
		if err != nil {
			return err
		}
		others := 0
		for _, info := range older {
			if info.GetExecution().GetRunId() != in.Owner.RunID {
				others++
			}
		}
		if others == 0 {
			return nil
		}
		if err := pause.For(ctx, look); err != nil {
			return err
		}
	}
}
