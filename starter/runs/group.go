package runs

import (
	"context"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/workflows"
)

const (
	// groupEvery bounds how often a group is asked, groupPatience how long it
	// has for the answer.
	groupEvery    = 2 * time.Second
	groupPatience = 2 * time.Second
)

// seenGroup is a concurrency group as it was a moment ago.
type seenGroup struct {
	at    time.Time
	state *workflows.GroupState // nil where it did not tell
}

// places says of what waits for a concurrency group which place it has now. The
// group tells its members only now and then. It only adorns: where the group does
// not answer, what the members were told stands.
func (r *Reader) places(ctx context.Context, d *run.Document) {
	fill := func(w *run.WaitingFor, node string) {
		if w == nil || w.Name == "" {
			return
		}
		var state *workflows.GroupState
		switch w.Kind {
		case run.WaitsGroup:
			state = r.group(ctx, run.GroupID(d.Tenant, d.Project, w.Name))
		case run.WaitsQuota:
			state = r.group(ctx, run.GroupID(d.Tenant, "", run.QuotaGroup))
		}
		if state == nil {
			return
		}
		i := slices.IndexFunc(state.Queue, func(m workflows.Member) bool {
			return m.Owner.RunKey == d.RunKey && m.Owner.Node == node
		})
		if i < 0 {
			return
		}
		w.Position, w.Holder = i+1, ""
		if len(state.Holders) > 0 {
			w.Holder = activities.SlotOwnerName(state.Holders[0].Owner)
		}
	}
	fill(d.WaitingFor, "")
	for i := range d.Stages {
		fill(d.Stages[i].WaitingFor, d.Stages[i].Node)
	}
}

// group asks a group how it stands, not more often than there is a need to.
func (r *Reader) group(ctx context.Context, id string) *workflows.GroupState {
	seen, ok := r.groups[id]
	if ok && time.Since(seen.at) < groupEvery {
		return seen.state
	}
	state := r.c.groupState(ctx, id)
	r.groups[id] = seenGroup{at: time.Now(), state: state}
	return state
}

// groupState asks a group how it stands; nil where it does not tell.
func (c *Client) groupState(ctx context.Context, id string) *workflows.GroupState {
	ctx, cancel := context.WithTimeout(ctx, groupPatience)
	defer cancel()
	resp, err := c.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: id, QueryType: workflows.GroupStateQuery,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if err != nil || resp.QueryRejected != nil {
		return nil
	}
	var state workflows.GroupState
	if resp.QueryResult.Get(&state) != nil {
		return nil
	}
	return &state
}
