package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/dedup"
	"belay.run/internal/pause"
	"belay.run/internal/run"
)

// Supersede has older runs with the same key make way: it asks them to cancel
// and waits until all that belongs to them is closed. Nobody is terminated. A
// run that is newer still wins: this one makes way itself then.
func (c *Claims) Supersede(ctx context.Context, in SupersedeInput) (*Superseded, error) {
	unstick(ctx, c.Client, c.Namespace)
	defer beating(ctx)()
	const look = 250 * time.Millisecond
	s := superseding{claims: c, in: &in, asked: map[string]bool{}}
	for {
		res, free, err := s.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, err
		case free || res.By != nil:
			return &res, nil
		}
		if pause.For(ctx, look) != nil {
			return nil, ctx.Err()
		}
	}
}

// superseding is one run that others make way for.
type superseding struct {
	claims *Claims
	in     *SupersedeInput
	asked  map[string]bool // run ids that were asked to cancel
}

// round asks those that are in the way and have not been asked, and reports
// whether none is left.
func (s *superseding) round(ctx context.Context) (res Superseded, free bool, err error) {
	holder := s.in.Holder
	if !s.asked[holder.RunID] {
		info, err := s.claims.describe(ctx, holder)
		switch {
		case err != nil:
			return res, false, err
		case info != nil && s.newer(info):
			return Superseded{By: &holder}, false, nil
		case info != nil:
			if err := s.ask(ctx, holder); err != nil {
				return res, false, err
			}
		}
		s.asked[holder.RunID] = true
	}
	waiting, err := s.claims.pending(ctx, &s.in.Claiming)
	if err != nil {
		return res, false, err
	}
	free = true
	for _, info := range waiting {
		other := ownerOf(info)
		switch {
		case other.RunKey == s.in.Owner.RunKey:
		case s.newer(info):
			return Superseded{By: &other}, false, nil
		case !s.asked[other.RunID]:
			if err := s.ask(ctx, other); err != nil {
				return res, false, err
			}
			s.asked[other.RunID] = true
			free = false
		default:
			free = false
		}
	}
	return res, free && !s.claims.alive.Ask(ctx, holder).Alive, nil
}

// newer reports whether a run was started after this one: by Temporal's clock,
// and of two in one instant by their ids, so that all agree on the newest.
func (s *superseding) newer(info *workflowpb.WorkflowExecutionInfo) bool {
	began := info.GetStartTime().AsTime()
	if began.Equal(s.in.Began) {
		return info.GetFirstRunId() > s.in.Owner.RunKey
	}
	return began.After(s.in.Began)
}

// ask requests the cancel of an older run.
func (s *superseding) ask(ctx context.Context, older dedup.Owner) error {
	_, err := s.claims.Client.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace:           s.claims.Namespace,
		WorkflowExecution:   &commonpb.WorkflowExecution{WorkflowId: older.WorkflowID},
		FirstExecutionRunId: older.RunKey, // a run that begins under the id meanwhile is another
		Identity:            s.in.Request.Sender,
		RequestId:           uuid.NewString(),
		Reason:              SupersededPrefix + "by " + s.in.Owner.WorkflowID + "@" + s.in.Owner.RunID,
	})
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("asking %s to make way: %w", older.WorkflowID, err)
	}
	return nil
}

// describe is what Temporal knows of the execution of a run that is open or was
// last; nil where it knows none.
func (c *Claims) describe(ctx context.Context, owner dedup.Owner) (*workflowpb.WorkflowExecutionInfo, error) {
	resp, err := c.Client.DescribeWorkflowExecution(ctx, owner.WorkflowID, owner.RunID)
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return nil, nil //nolint:nilnil // Temporal keeps histories for a time only
	case err != nil:
		return nil, fmt.Errorf("looking for run %s: %w", owner.WorkflowID, err)
	}
	return resp.GetWorkflowExecutionInfo(), nil
}

// PendingStatus is the state that a run publishes while older ones make way for
// it, so that those which are newer still find it.
const PendingStatus = run.Pending

// pending are the runs that wait for older ones with the same key to make way.
func (c *Claims) pending(ctx context.Context, in *Claiming) ([]*workflowpb.WorkflowExecutionInfo, error) {
	return c.list(ctx, keyQuery(in)+" AND ExecutionStatus = 'Running' AND BelayStatus = "+quote(string(PendingStatus)))
}
