package activities

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// maxRemains bounds what one answer holds, in entries and in bytes of their
	// commands: it travels in Temporal's history.
	maxRemains     = 200
	maxRemainBytes = 512 << 10
	// maxCut bounds the stages whose histories are read for one answer.
	maxCut = 100
	// maxStageEvents bounds how much of each is read.
	maxStageEvents = 20_000
)

// Remains is what a closed run, or a closed stage, may have left: what the ledger
// has, and the hosts of stages that were ended without giving anything back.
func (r *Reaper) Remains(ctx context.Context, in ReapInput) (*Remains, error) {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	defer beating(ctx)()
	out := &Remains{Entries: []resource.Entry{}, Bound: []BoundStage{}, Notify: in.Notify}
	if err := r.entries(ctx, in, out); err != nil {
		return nil, err
	}
	cut, err := r.cutStages(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, info := range cut {
		if len(out.Bound) >= maxCut {
			break // the hosts of the others find out by themselves, only later
		}
		bound, err := r.boundTo(ctx, in.Owner.RunKey, info)
		if err != nil {
			return nil, err
		}
		out.Bound = append(out.Bound, bound...)
	}
	if in.Owner.Node == "" && out.Notify == nil && len(out.Entries) > 0 {
		if err := r.planOf(ctx, in.Owner, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// entries reads what the ledger has.
func (r *Reaper) entries(ctx context.Context, in ReapInput, out *Remains) error {
	all, err := r.cfg.Ledger.Of(ctx, in.Owner.RunKey)
	if err != nil {
		return err
	}
	bytes := 0
	for i := range all {
		e := &all[i]
		if out.Tenant == "" {
			out.Tenant, out.Project, out.Pipeline = e.Tenant, e.Project, e.Pipeline
		}
		if !e.Open() || in.Owner.Node != "" && !run.Within(e.Node, in.Owner.Node) {
			continue
		}
		if bytes += commandSize(e.Release); len(out.Entries) == maxRemains || bytes > maxRemainBytes && len(out.Entries) > 0 {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, *e)
	}
	return r.findHosts(ctx, out.Entries)
}

// findHosts gives entries the queues of their hosts as they are now: one that has
// booted since is found under another.
func (r *Reaper) findHosts(ctx context.Context, entries []resource.Entry) error {
	queues := map[string]string{}
	for i := range entries {
		e := &entries[i]
		if e.Host == "" || e.Queue == "" {
			continue
		}
		queue, asked := queues[e.Host]
		if !asked {
			var err error
			if queue, err = r.cfg.Ledger.QueueOf(ctx, e.Host); err != nil {
				return err
			}
			queues[e.Host] = queue
		}
		if queue != "" {
			e.Queue = queue
		}
	}
	return nil
}

func commandSize(c *resource.Command) int {
	if c == nil {
		return 0
	}
	n := len(c.Script)
	for k, v := range c.Env {
		n += len(k) + len(v)
	}
	return n
}

// cutStages are the stages that closed without coming to their end.
func (r *Reaper) cutStages(ctx context.Context, in ReapInput) ([]*workflowpb.WorkflowExecutionInfo, error) {
	if in.Owner.Node != "" {
		info, err := r.alive.Describe(ctx, in.Owner.WorkflowID, in.Owner.RunID)
		if err != nil || info == nil {
			return nil, err
		}
		return []*workflowpb.WorkflowExecutionInfo{info}, nil
	}
	tree, err := r.alive.Tree(ctx, claimOwner(in.Owner))
	if err != nil {
		return nil, err
	}
	return tree.CutStages(), nil
}

// boundTo reads from the history of a stage which hosts took it.
func (r *Reaper) boundTo(ctx context.Context, runKey string, info *workflowpb.WorkflowExecutionInfo) ([]BoundStage, error) {
	exec := info.GetExecution()
	var out []BoundStage
	taking := map[int64]bool{} // events that scheduled the taking of the stage
	var owner Owner
	err := r.eachEvent(ctx, exec.GetWorkflowId(), exec.GetRunId(), func(e *historypb.HistoryEvent) (more bool) {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "Bind" {
			taking[e.GetEventId()] = decodeFirst(a.GetInput(), &owner) && owner.RunKey == runKey
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); taking[a.GetScheduledEventId()] {
			var b Binding
			if decodeFirst(a.GetResult(), &b) {
				out = append(out, BoundStage{Owner: owner, Binding: b})
			}
		}
		return true
	})
	return out, err
}

// planOf reads from the history of a run what its plan says of the run as a
// whole: its name, and who is told of leaks.
func (r *Reaper) planOf(ctx context.Context, owner Owner, out *Remains) error {
	planning := map[int64]bool{}
	return r.eachEvent(ctx, owner.WorkflowID, owner.RunID, func(e *historypb.HistoryEvent) (more bool) {
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "Plan" {
			planning[e.GetEventId()] = true
		}
		a := e.GetActivityTaskCompletedEventAttributes()
		if !planning[a.GetScheduledEventId()] {
			return true
		}
		var plan struct {
			Name   string       `json:"name"`
			Notify *spec.Notify `json:"notify"`
		}
		if decodeFirst(a.GetResult(), &plan) {
			out.Notify, out.Pipeline = plan.Notify, plan.Name
		}
		return false
	})
}

// eachEvent goes through a history, oldest first, as long as do wants more. One
// that is gone has none.
func (r *Reaper) eachEvent(ctx context.Context, id, runID string, do func(*historypb.HistoryEvent) bool) error {
	events := r.cfg.Client.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for n := 0; events.HasNext() && n < maxStageEvents; n++ {
		event, err := events.Next()
		if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the history of %s: %w", id, err)
		}
		if !do(event) {
			return nil
		}
	}
	return nil
}

// decodeFirst reads the first of some payloads, and reports whether it could.
func decodeFirst(p *commonpb.Payloads, into any) bool {
	payloads := p.GetPayloads()
	return len(payloads) > 0 && converter.GetDefaultDataConverter().FromPayload(payloads[0], into) == nil
}
