package liveness

import (
	"context"
	"fmt"
	"sync"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"
)

// allOpen finds all that is open of what a person or a program began. It names
// the closed states, since those of an open one have grown in number before.
const allOpen = "WorkflowType IN ('Pipeline', 'Batch') AND " +
	"ExecutionStatus NOT IN ('Completed', 'Failed', 'Canceled', 'Terminated', 'ContinuedAsNew', 'TimedOut')"

// looksAtOnce is how many executions are described at one time.
const looksAtOnce = 8

// All is what is open in the namespace.
type All struct {
	// Runs are the run keys of the runs and batches that are open.
	Runs map[string]bool
	// Oldest is when the first of them began; zero where none is open.
	Oldest time.Time
}

// Census says what is open in the whole namespace. It remembers what does not
// change of an execution, so that each is described once. It is safe for
// concurrent use.
type Census struct {
	asker *Asker

	mu    sync.Mutex
	known map[string]began // by run id
}

// began is the beginning of the chain that an execution belongs to.
type began struct {
	runKey string
	at     time.Time
}

// NewCensus returns a Census that asks by asker.
func NewCensus(asker *Asker) *Census { return &Census{asker: asker} }

// Open lists all that is open. An error means that nobody knows: then everything
// may be.
func (c *Census) Open(ctx context.Context) (*All, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := map[string]began{}
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: c.asker.namespace, Query: allOpen, PageSize: page}
	for {
		resp, err := c.asker.client.WorkflowService().ListWorkflowExecutions(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("asking Temporal which runs are open: %w", err)
		}
		if err := c.learnLocked(ctx, resp.GetExecutions(), open); err != nil {
			return nil, err
		}
		if request.NextPageToken = resp.GetNextPageToken(); len(request.NextPageToken) == 0 {
			break
		}
	}
	c.known = open
	all := &All{Runs: make(map[string]bool, len(open))}
	for _, b := range open {
		all.Runs[b.runKey] = true
		if all.Oldest.IsZero() || b.at.Before(all.Oldest) {
			all.Oldest = b.at
		}
	}
	return all, nil
}

// learnLocked finds out when each execution began. The list does not say: one that was
// reset or continued has a run id, and a start, of its own.
func (c *Census) learnLocked(ctx context.Context, list []*workflowpb.WorkflowExecutionInfo, open map[string]began) error {
	found := make([]began, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(looksAtOnce)
	for i, info := range list {
		exec := info.GetExecution()
		if b, known := c.known[exec.GetRunId()]; known {
			found[i] = b
			continue
		}
		group.Go(func() error {
			d, err := c.asker.describeAll(ctx, exec.GetWorkflowId(), exec.GetRunId())
			if err != nil || d == nil {
				return err // nil: it has closed, and its history is gone
			}
			found[i] = began{d.GetWorkflowExecutionInfo().GetFirstRunId(), d.GetWorkflowExtendedInfo().GetOriginalStartTime().AsTime()}
			if found[i].runKey == "" {
				found[i].runKey = exec.GetRunId()
			}
			if d.GetWorkflowExtendedInfo().GetOriginalStartTime() == nil {
				found[i].at = d.GetWorkflowExecutionInfo().GetStartTime().AsTime()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, info := range list {
		if found[i].runKey != "" {
			open[info.GetExecution().GetRunId()] = found[i]
		}
	}
	return nil
}
