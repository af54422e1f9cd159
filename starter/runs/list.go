package runs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"belay.run/internal/run"
	"belay.run/workflows"
)

// Filter says which runs to list. Empty fields match all.
type Filter struct {
	Status   run.Status
	Pipeline string
	Tenant   string
	Project  string
	// Since leaves out runs that started earlier.
	Since time.Time
	// Limit bounds how many; it must be positive.
	Limit int
}

const onlyPipelines = "WorkflowType = '" + workflows.PipelineWorkflow + "'"

// maxListed bounds the runs that are looked through for the newest.
const maxListed = 10000

// List gives the newest runs that match, the newest first. Of each it tells
// what Temporal's visibility knows: no stages and no inputs.
func (c *Client) List(ctx context.Context, f Filter) ([]run.Document, error) {
	// Temporal lists what runs, then by the end. To have the newest by their
	// start without reading all there are, ever longer windows are asked for.
	now := time.Now()
	for _, window := range []time.Duration{10 * time.Minute, 2 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 0} {
		since := now.Add(-window)
		last := window == 0 || since.Before(f.Since)
		if last {
			since = f.Since
		}
		docs, err := c.listSince(ctx, f, since)
		if err != nil {
			return nil, err
		}
		if last || len(docs) >= f.Limit {
			return docs[:min(len(docs), f.Limit)], nil
		}
	}
	return nil, nil
}

func (c *Client) listSince(ctx context.Context, f Filter, since time.Time) ([]run.Document, error) {
	docs := []run.Document{}
	err := c.each(ctx, f.query(since), maxListed, func(info *workflowpb.WorkflowExecutionInfo) {
		if d := c.known(info); f.Status == "" || d.Status == f.Status {
			docs = append(docs, *d)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(docs, func(a, b run.Document) int { return b.StartedAt.Compare(*a.StartedAt) })
	return docs, nil
}

// query is the filter in Temporal's language. A state that it cannot tell apart
// from others is asked for roughly and sifted afterwards.
func (f Filter) query(since time.Time) string {
	parts := []string{onlyPipelines}
	for _, eq := range [][2]string{
		{workflows.AttrPipeline, f.Pipeline}, {workflows.AttrTenant, f.Tenant}, {workflows.AttrProject, f.Project},
	} {
		if eq[1] != "" {
			parts = append(parts, eq[0]+" = "+quote(eq[1]))
		}
	}
	if !since.IsZero() {
		parts = append(parts, "StartTime >= "+quote(since.UTC().Format(time.RFC3339Nano)))
	}
	if closed := closedAs(f.Status); closed != "" {
		parts = append(parts, closed)
	}
	return strings.Join(parts, " AND ")
}

func closedAs(s run.Status) string {
	switch s {
	case run.Pending, run.Running, run.Cancelling:
		return "ExecutionStatus = 'Running'"
	case run.Succeeded, run.Skipped:
		return "ExecutionStatus = 'Completed'"
	case run.Failed:
		return "ExecutionStatus = 'Failed'"
	case run.TimedOut:
		return "ExecutionStatus IN ('Failed', 'TimedOut')"
	case run.Cancelled:
		return "ExecutionStatus IN ('Canceled', 'Terminated')"
	case run.Duplicate:
		return "ExecutionStatus IN ('Completed', 'Failed')"
	}
	return ""
}

// quote makes a literal of Temporal's query language.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// Outline is the document of a run as far as the server itself knows it: no
// stages and no inputs, but no worker is needed for it.
func (c *Client) Outline(ctx context.Context, ref Ref) (*run.Document, error) {
	info, err := c.describe(ctx, ref)
	if err != nil {
		return nil, err
	}
	return c.known(info), nil
}

// known is what the server knows of a run.
func (c *Client) known(info *workflowpb.WorkflowExecutionInfo) *run.Document {
	ref := refOf(info)
	attrs := info.GetSearchAttributes()
	d := &run.Document{
		ID: ref.ID, RunID: ref.RunID, RunKey: info.GetFirstRunId(), URL: c.URL(ref),
		Tenant:   keyword(attrs, workflows.AttrTenant),
		Project:  keyword(attrs, workflows.AttrProject),
		Pipeline: keyword(attrs, workflows.AttrPipeline),
		DedupKey: keyword(attrs, workflows.AttrDedupKey),
		Status:   statusOf(info.GetStatus(), run.Status(keyword(attrs, workflows.AttrStatus))),
		Inputs:   map[string]any{}, Resources: []run.Resource{}, Stages: []run.Stage{},
	}
	fillNames(d)
	start := info.GetStartTime().AsTime()
	d.StartedAt = &start
	if info.GetCloseTime() != nil {
		end := info.GetCloseTime().AsTime()
		d.EndedAt = &end
	}
	return d
}

// statusOf is the state of a run by how its workflow is, and the state it last
// published. A terminated workflow could not publish its own.
func statusOf(w enumspb.WorkflowExecutionStatus, published run.Status) run.Status {
	switch w {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW, enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:
		if published == run.Pending || published == run.Cancelling {
			return published
		}
		return run.Running
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		if published.OK() || published == run.Skipped {
			return published
		}
		return run.Succeeded
	case enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:
		if published == run.TimedOut || published == run.Duplicate {
			return published
		}
		return run.Failed
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return run.Cancelled
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return run.TimedOut
	}
	return run.Failed
}

// keyword reads a search attribute; one that is not set is empty.
func keyword(attrs *commonpb.SearchAttributes, name string) string {
	payload, ok := attrs.GetIndexedFields()[name]
	if !ok {
		return ""
	}
	var s string
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &s); err != nil {
		return fmt.Sprintf("(unreadable: %v)", err)
	}
	return s
}

// fillNames takes from the id of a run what its search attributes do not say.
func fillNames(d *run.Document) {
	parts := strings.SplitN(d.ID, "/", 4)
	if len(parts) < 4 {
		return
	}
	for i, field := range []*string{&d.Tenant, &d.Project, &d.Pipeline} {
		if *field == "" {
			*field = parts[i]
		}
	}
}
