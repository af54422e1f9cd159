package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.uber.org/zap"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// overdueMargin is how far past all its budgets a run is worth a word: a stage
	// may have moved to another host, or Temporal been away.
	overdueMargin = 10 * time.Minute
	// overdueEvery is how often one looks, and clockEvery how often whether the
	// clock of a run has begun that waited for its turn.
	overdueEvery = time.Minute
	clockEvery   = 10 * time.Minute
	// maxOverdueReads bounds the histories that are read in one look, and maxOverdue
	// the runs that it names.
	maxOverdueReads, maxOverdue = 50, 20
)

// Overdue is a run that goes on long after it should have ended by its own clocks:
// nobody works on it, or something is wrong.
type Overdue struct {
	Owner    Owner     `json:"owner"`
	Deadline time.Time `json:"deadline"`
	// Notify is who is told, nil where nobody is.
	Notify   *spec.Notify `json:"notify,omitempty"`
	Tenant   string       `json:"tenant"`
	Project  string       `json:"project"`
	Pipeline string       `json:"pipeline"`
}

// clocks remembers of open runs when they should have ended, by run id, so that
// each history is read once. It is safe for concurrent use.
type clocks struct {
	mu   sync.Mutex
	last time.Time
	of   map[string]*clock
}

type clock struct {
	Overdue

	// again is when to look once more whether the clock has begun. told: people
	// were told that it is over.
	again time.Time
	told  bool
}

// overdue finds the runs that are far past their budgets and of which nobody has
// been told.
func (r *Reaper) overdue(ctx context.Context, eager bool) ([]Overdue, error) {
	r.clocks.mu.Lock()
	defer r.clocks.mu.Unlock()
	now := time.Now()
	if !eager && now.Sub(r.clocks.last) < overdueEvery {
		return nil, nil
	}
	r.clocks.last = now
	open, err := r.list(ctx, "WorkflowType = 'Pipeline' AND ExecutionStatus = 'Running' AND StartTime < "+
		quote(now.Add(-overdueMargin).UTC().Format(time.RFC3339Nano)))
	if err != nil {
		return nil, err
	}
	known, reads := make(map[string]*clock, len(open)), 0
	var out []Overdue
	for _, info := range open {
		id := info.GetExecution().GetRunId()
		c := r.clocks.of[id]
		if c == nil || c.Deadline.IsZero() && now.After(c.again) {
			if reads++; reads > maxOverdueReads {
				continue // with a later look
			}
			if c, err = r.readClock(ctx, info, now); err != nil {
				return nil, err
			}
		}
		known[id] = c
		if c.told || c.Deadline.IsZero() || now.Before(c.Deadline.Add(overdueMargin)) || len(out) == maxOverdue {
			continue
		}
		first, err := r.cfg.Ledger.MarkOverdue(ctx, c.Owner.RunKey)
		if err != nil {
			return out, err
		}
		if c.told = true; first {
			r.sayOverdue(c)
			out = append(out, c.Overdue)
		}
	}
	r.clocks.of = known
	return out, nil
}

// sayOverdue tells those who read logs and metrics.
func (r *Reaper) sayOverdue(c *clock) {
	r.cfg.Logger.Warn("a run goes on long after its timeout, and all that may follow it, should have ended it",
		zap.String("run", c.Owner.RunKey), zap.String("workflow", c.Owner.WorkflowID), zap.String("workflow_run", c.Owner.RunID),
		zap.String("pipeline", c.Pipeline), zap.Time("deadline", c.Deadline))
	if r.cfg.Overdue != nil {
		r.cfg.Overdue()
	}
}

// readClock reads in the history of a run when its clock began and what its plan
// allows it. The deadline is none where it waits for its turn, or has no timeout.
func (r *Reaper) readClock(ctx context.Context, info *workflowpb.WorkflowExecutionInfo, now time.Time) (*clock, error) {
	exec := info.GetExecution()
	c := &clock{again: now.Add(clockEvery)}
	c.Owner = Owner{RunKey: info.GetFirstRunId(), WorkflowID: exec.GetWorkflowId(), RunID: exec.GetRunId()}
	c.Tenant, c.Project = run.DefaultTenant, run.DefaultProject
	var plan spec.Plan
	planning := map[int64]bool{}
	err := r.eachEvent(ctx, c.Owner.WorkflowID, c.Owner.RunID, func(e *historypb.HistoryEvent) (more bool) {
		if a := e.GetWorkflowExecutionStartedEventAttributes(); a != nil {
			c.begin(a)
		}
		if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "Plan" {
			planning[e.GetEventId()] = true
		}
		if a := e.GetActivityTaskCompletedEventAttributes(); planning[a.GetScheduledEventId()] && decodeFirst(a.GetResult(), &plan) {
			c.Pipeline, c.Notify = plan.Name, plan.Notify
		}
		if !isClock(e, plan.Timeout) {
			return true
		}
		c.Deadline = e.GetEventTime().AsTime().Add(budget(&plan))
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("reading when run %s is to end: %w", c.Owner.WorkflowID, err)
	}
	return c, nil
}

// isClock reports whether an event is the start of the clock of a run. Servers that
// are older than names of timers leave only how long it is.
func isClock(e *historypb.HistoryEvent, timeout time.Duration) bool {
	a := e.GetTimerStartedEventAttributes()
	if a == nil || timeout == 0 || a.GetStartToFireTimeout().AsDuration() != timeout {
		return false
	}
	var name string
	summary := e.GetUserMetadata().GetSummary()
	return summary == nil || decodeFirst(&commonpb.Payloads{Payloads: []*commonpb.Payload{summary}}, &name) && name == PipelineClock
}

// begin takes what the start of a run says of it.
func (c *clock) begin(a *historypb.WorkflowExecutionStartedEventAttributes) {
	var in struct {
		Tenant  string `json:"tenant"`
		Project string `json:"project"`
	}
	if decodeFirst(a.GetInput(), &in) && in.Tenant != "" {
		c.Tenant = in.Tenant
	}
	if in.Project != "" {
		c.Project = in.Project
	}
	if c.Owner.RunKey == "" {
		c.Owner.RunKey = a.GetFirstExecutionRunId()
	}
}

// budget is what a run may take from the start of its clock, at the most: its
// timeout, then what follows in its stages, then what follows in itself.
func budget(p *spec.Plan) time.Duration {
	var stage time.Duration
	for i := range p.Stages {
		s := &p.Stages[i]
		// Rollback and finally have that time each, and a grace period at its end.
		after := longestGrace(s.Steps) + longestGrace(s.Rollback) + longestGrace(s.Finally) + 2*s.FinallyTimeout
		stage = max(stage, after+p.ReleaseTimeout)
	}
	return p.Timeout + stage + p.FinallyTimeout + longestGrace(p.Finally) + 2*p.ReleaseTimeout
}

func longestGrace(steps []spec.Step) time.Duration {
	var longest time.Duration
	for i := range steps {
		longest = max(longest, steps[i].GracePeriod, longestGrace(steps[i].Parallel))
	}
	return longest
}
