package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/liveness"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

const (
	// maxCandidates bounds the closed runs that one look asks Temporal for.
	maxCandidates = 1000
	// lookBack is how long ago a run may have closed that nobody has confirmed.
	// The ledger keeps a confirmation as long.
	lookBack = 7 * 24 * time.Hour
	// hearWithin is how long the stages of a closed run have to hear of it from
	// Temporal, before somebody else is to ask them to end.
	hearWithin = time.Minute
	// firstRetry and lastRetry bound how long the janitor waits before it tries
	// once more what could not be released; freeTries is how often it has been
	// tried by then.
	firstRetry = 15 * time.Second
	lastRetry  = 10 * time.Minute
	freeTries  = 6
)

// candidate is a run that may have left something.
type candidate struct {
	owner Owner
	// open is whether the ledger has something of it that is not released;
	// tries how often that was tried, where all of it is known to be leaked.
	open  bool
	tries int
	// closed is when it closed, as far as that is known.
	closed time.Time
}

// FindClosed finds closed runs that left something, or may have: those of which
// the ledger has something that is not released, and those that closed without
// saying how they ended. Beside them it finds open runs that are overdue.
func (r *Reaper) FindClosed(ctx context.Context, in FindInput) (*Found, error) {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	defer beating(ctx)()
	found := &Found{Runs: []Owner{}}
	held, err := r.fromLedger(ctx)
	if err != nil { // what Temporal knows is worth having without it
		found.Notes = append(found.Notes, fmt.Sprintf("the ledger could not be read whole: %v", err))
	}
	cut, err := r.fromVisibility(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.sift(ctx, in, held, cut, found); err != nil {
		return nil, err
	}
	if found.Overdue, err = r.overdue(ctx, in.Eager); err != nil { // what closed runs left does not wait for that
		found.Notes = append(found.Notes, fmt.Sprintf("which runs are overdue is not known: %v", err))
	}
	return found, nil
}

// fromLedger reads which runs have not released something.
func (r *Reaper) fromLedger(ctx context.Context) ([]*candidate, error) {
	live, err := r.openRuns(ctx)
	if err != nil {
		return nil, err
	}
	var out []*candidate
	byRun := map[string]*candidate{}
	leaked := map[string]bool{}
	var first error
	for e, err := range r.cfg.Ledger.Unreleased(ctx) {
		if err != nil {
			first = err
			continue
		}
		if e.State == run.ResourceLeaked {
			leaked[e.Holder()] = true
		}
		if live[e.RunID] || live[e.RunKey] {
			continue
		}
		c := byRun[e.RunKey]
		if c == nil {
			c = &candidate{owner: ownerOfEntry(&e), open: true, tries: e.Attempts}
			byRun[e.RunKey] = c
			out = append(out, c)
		}
		if e.State != run.ResourceLeaked {
			c.tries = 0
		}
		c.tries = min(c.tries, e.Attempts)
	}
	if first == nil {
		first = r.cfg.Ledger.CheckLeaked(ctx, leaked)
	}
	return out, first
}

func ownerOfEntry(e *resource.Entry) Owner {
	return Owner{RunKey: e.RunKey, WorkflowID: e.WorkflowID, RunID: e.RunID}
}

// openRuns are the run ids of runs that are open, so that these need not be asked
// for one by one. It may lack some.
func (r *Reaper) openRuns(ctx context.Context) (map[string]bool, error) {
	open, err := r.list(ctx, "WorkflowType = 'Pipeline' AND ExecutionStatus = 'Running'")
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(open))
	for _, info := range open {
		out[info.GetExecution().GetRunId()] = true
	}
	return out, nil
}

// fromVisibility are the runs that closed without publishing how: they were
// terminated, or Temporal ended them.
func (r *Reaper) fromVisibility(ctx context.Context) ([]*candidate, error) {
	closed, err := r.list(ctx, "WorkflowType = 'Pipeline' AND ExecutionStatus != 'Running' AND BelayStatus IN ("+
		quote(string(run.Running))+", "+quote(string(run.Pending))+", "+quote(string(run.Cancelling))+") AND CloseTime > "+
		quote(time.Now().Add(-lookBack).UTC().Format(time.RFC3339Nano)))
	if err != nil {
		return nil, err
	}
	out := make([]*candidate, 0, len(closed))
	for _, info := range closed {
		out = append(out, &candidate{
			owner: Owner{
				RunKey: info.GetFirstRunId(), WorkflowID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(),
			},
			closed: info.GetCloseTime().AsTime(),
		})
	}
	return out, nil
}

func (r *Reaper) list(ctx context.Context, query string) ([]*workflowpb.WorkflowExecutionInfo, error) {
	resp, err := r.cfg.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.cfg.Namespace, Query: query, PageSize: maxCandidates,
	})
	if err != nil {
		return nil, fmt.Errorf("asking Temporal for runs: %w", err)
	}
	return resp.GetExecutions(), nil
}

// sift keeps of the candidates those that are closed, unconfirmed, and due.
func (r *Reaper) sift(ctx context.Context, in FindInput, held, cut []*candidate, found *Found) error {
	all := slices.Concat(held, cut)
	due := make([]bool, len(all))
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(looksAtOnce)
	for i, c := range all {
		group.Go(func() error {
			var note string
			var err error
			due[i], note, err = r.due(ctx, c, in.Eager)
			mu.Lock()
			defer mu.Unlock()
			if note != "" && len(found.Notes) < maxNotes {
				found.Notes = append(found.Notes, note)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, c := range all {
		switch {
		case !due[i] || seen[c.owner.RunKey]:
		case len(found.Runs) == in.Limit:
			found.More = true
		default:
			seen[c.owner.RunKey] = true
			found.Runs = append(found.Runs, c.owner)
		}
	}
	return nil
}

// maxNotes bounds what one look complains about.
const maxNotes = 20

// due reports whether a candidate is closed, with something to do for it now. It
// completes what is known of its owner.
func (r *Reaper) due(ctx context.Context, c *candidate, eager bool) (due bool, note string, err error) {
	if c.owner.RunKey == "" { // visibility does not keep it; nearly always it is this
		c.owner.RunKey = c.owner.RunID
	}
	if !c.open {
		if done, err := r.confirmed(ctx, c); done || err != nil {
			return false, "", err
		}
	}
	answer := r.alive.Ask(ctx, claimOwner(c.owner))
	if answer.Unsure {
		return false, fmt.Sprintf("whether %s is closed is not known: %v", c.owner.WorkflowID, answer.Err), nil
	}
	if answer.Alive {
		deaf, err := r.unheard(ctx, c.owner)
		if err != nil {
			return false, fmt.Sprintf("whether the stages of %s are to end is not known: %v", c.owner.WorkflowID, err), nil
		}
		if !deaf {
			return false, "", nil
		}
	}
	last, err := r.alive.Describe(ctx, run.ReapID(c.owner.RunKey, ""), "")
	switch {
	case err != nil:
		return false, "", err
	case last == nil:
		return true, "", nil
	case liveness.Open(last):
		return false, "", nil
	case !c.open && last.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		// Without a ledger, that it was reaped is the only confirmation.
		return last.GetCloseTime().AsTime().Before(c.closed), "", nil
	}
	return eager || time.Since(last.GetCloseTime().AsTime()) >= patienceAfter(c.tries), "", nil
}

// unheard reports whether a run that closed a while ago has a stage that goes on,
// and that nobody has asked to end.
func (r *Reaper) unheard(ctx context.Context, owner Owner) (bool, error) {
	tree, err := r.alive.Tree(ctx, claimOwner(owner))
	if err != nil || tree.RunOpen() || time.Since(tree.Run.GetCloseTime().AsTime()) < hearWithin {
		return false, err
	}
	for _, s := range tree.OpenStages() {
		exec := s.GetExecution()
		d, err := r.cfg.Client.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: r.cfg.Namespace, Execution: exec,
		})
		if err != nil {
			return false, fmt.Errorf("asking whether %s is to end: %w", exec.GetWorkflowId(), err)
		}
		if liveness.Open(d.GetWorkflowExecutionInfo()) && !d.GetWorkflowExtendedInfo().GetCancelRequested() {
			return true, nil
		}
	}
	return false, nil
}

// confirmed reports whether somebody has confirmed that nothing is left of a run.
// The key of one that was reset is not its run id: Temporal is asked for it.
func (r *Reaper) confirmed(ctx context.Context, c *candidate) (bool, error) {
	status, err := r.cfg.Ledger.Confirmed(ctx, c.owner.RunKey)
	if err != nil {
		return false, nil //nolint:nilerr // Redis is away: it is looked at once more than needed
	}
	if status != "" {
		return true, nil
	}
	info, err := r.alive.Describe(ctx, c.owner.WorkflowID, c.owner.RunID)
	if err != nil || info == nil {
		return info == nil, err // its history is gone, and what was bound is known to nobody but the hosts
	}
	if first := info.GetFirstRunId(); first != "" && first != c.owner.RunKey {
		c.owner.RunKey = first
		status, err = r.cfg.Ledger.Confirmed(ctx, first)
		return err == nil && status != "", nil
	}
	return false, nil
}

// patienceAfter is how long the janitor lets something be that could not be
// released so many times.
func patienceAfter(tries int) time.Duration {
	wait := firstRetry
	for i := freeTries; i < tries && wait < lastRetry; i++ {
		wait *= 2
	}
	return min(wait, lastRetry)
}
