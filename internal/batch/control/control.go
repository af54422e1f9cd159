// Package control starts batches of light tasks in Temporal, tells how they
// stand, and asks them to cancel.
package control

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/batch"
	"belay.run/internal/run"
)

const (
	// taskTimeout is how long a workflow task that a killed worker held stays
	// lost.
	taskTimeout = 2 * time.Second
	// attrTenant and its like are the search attributes that the workflows set.
	attrTenant  = "BelayTenant"
	attrProject = "BelayProject"
	attrStatus  = "BelayStatus"
)

// Client speaks to Temporal about batches. It is safe for concurrent use.
type Client struct {
	temporal  client.Client
	namespace string
	web       string
}

// New returns a client for one namespace. Web is the address of Temporal's UI,
// or empty.
func New(c client.Client, namespace, web string) *Client {
	return &Client{temporal: c, namespace: namespace, web: strings.TrimRight(web, "/")}
}

// Started is a batch that Start began, or found.
type Started struct {
	ID    string
	RunID string
	// Attached says that a batch with this name was there already.
	Attached bool
}

// Start starts a batch whose chunks are packed, under a name of its own. One
// name always means one batch: where there is one already, it is that which is
// returned.
func (c *Client) Start(ctx context.Context, in batch.Input, name string) (Started, error) {
	id := run.BatchID(in.Tenant, in.Project, name)
	what := fmt.Sprintf("batch of %d tasks", in.Total)
	if in.File != "" {
		what += " of " + in.File
	}
	started, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       id,
		TaskQueue:                                run.QueueWorkflows,
		WorkflowTaskTimeout:                      taskTimeout,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Priority:                                 run.Priority(in.Tenant, 0),
		StaticSummary:                            strings.ToValidUTF8(what[:min(len(what), maxSummary)], ""),
		Memo:                                     map[string]any{batch.Memo: in},
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(attrTenant).ValueSet(in.Tenant),
			temporal.NewSearchAttributeKeyKeyword(attrProject).ValueSet(in.Project),
			temporal.NewSearchAttributeKeyKeyword(attrStatus).ValueSet(string(run.Running)),
		),
	}, batch.Workflow, in)
	if there, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		return Started{ID: id, RunID: there.RunId, Attached: true}, nil
	}
	if err != nil {
		return Started{}, fmt.Errorf("starting the batch: %w", err)
	}
	return Started{ID: id, RunID: started.GetRunID()}, nil
}

// maxSummary is what Temporal keeps of a summary, in bytes.
const maxSummary = 390

// Cancel asks a batch to cancel, and returns when Temporal has recorded that.
func (c *Client) Cancel(ctx context.Context, id, by, reason string) error {
	_, err := c.temporal.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace:         c.namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
		Identity:          by,
		Reason:            reason,
		RequestId:         uuid.NewString(),
	})
	if err != nil {
		return fmt.Errorf("asking %s to cancel: %w", id, err)
	}
	return nil
}

// Await waits until a batch has ended and returns how.
func (c *Client) Await(ctx context.Context, id string) (*batch.Document, error) {
	// The end of whichever run it continued as. How it ended is read below.
	err := c.temporal.GetWorkflow(ctx, id, "").Get(ctx, nil)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var failed *temporal.WorkflowExecutionError
	if err != nil && !errors.As(err, &failed) {
		return nil, fmt.Errorf("waiting for the end of %s: %w", id, err)
	}
	return c.Read(ctx, id)
}

// URL is where Temporal's UI shows a batch; empty where no UI is known.
func (c *Client) URL(id, runID string) string {
	if c.web == "" {
		return ""
	}
	return c.web + "/namespaces/" + url.PathEscape(c.namespace) + "/workflows/" + url.PathEscape(id) + "/" + url.PathEscape(runID)
}
