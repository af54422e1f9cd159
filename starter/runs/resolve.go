package runs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/run"
	"belay.run/workflows"
)

const (
	// minPrefix is how many characters of a run id must be given.
	minPrefix = 8
	// searched bounds how many of the newest runs a prefix is looked for in.
	searched = 5000
	// maxCandidates bounds those that an ambiguous prefix names.
	maxCandidates = 5
)

// UnknownError says that no run, or more than one, is meant.
type UnknownError struct {
	Arg string
	// Candidates are those that were meant where there is more than one.
	Candidates []Ref
	// Reason is what was found instead of a run.
	Reason string
}

// Error names the argument and what it could mean.
func (e *UnknownError) Error() string {
	switch {
	case len(e.Candidates) > 0:
		lines := make([]string, 0, len(e.Candidates)+1)
		lines = append(lines, fmt.Sprintf("%q means more than one run:", e.Arg))
		for _, r := range e.Candidates {
			lines = append(lines, "  "+r.String())
		}
		return strings.Join(lines, "\n")
	case e.Reason != "":
		return fmt.Sprintf("%q is not a run: %s", e.Arg, e.Reason)
	}
	return fmt.Sprintf("no run %q", e.Arg)
}

var (
	uuidText   = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	uuidPrefix = regexp.MustCompile(`^[0-9a-fA-F-]{8,36}$`)
)

// Resolve finds the run that arg means: an id (its newest run; where that is a
// duplicate, the run that stands for it), id@run_id, or
// the first characters of a run id, or of the UUID at the end of an id, which
// people copy as often. The error is an *UnknownError where there is none.
func (c *Client) Resolve(ctx context.Context, arg string) (Ref, error) {
	ref := Ref{ID: arg}
	if at := strings.LastIndexByte(arg, '@'); at > 0 && uuidText.MatchString(arg[at+1:]) {
		ref = Ref{ID: arg[:at], RunID: strings.ToLower(arg[at+1:])}
	}
	if strings.TrimSpace(arg) == "" || !printable(arg) {
		return Ref{}, &UnknownError{Arg: arg, Reason: "ids are printable ASCII without spaces"}
	}
	info, err := c.describe(ctx, ref)
	switch {
	case err == nil && ref.RunID == "" && published(info) == run.Duplicate:
		// Nothing of it ran: who asks for an id means the run that did.
		return c.original(ctx, refOf(info))
	case err == nil:
		return pipelineRef(arg, info)
	case !isNotFound(err):
		return Ref{}, fmt.Errorf("looking for run %s: %w", arg, err)
	case ref.RunID != "" || !uuidPrefix.MatchString(arg):
		return Ref{}, &UnknownError{Arg: arg, Reason: tooShort(arg)}
	}
	return c.byPrefix(ctx, strings.ToLower(arg))
}

// published is the state of a run as it was last published.
func published(info *workflowpb.WorkflowExecutionInfo) run.Status {
	return run.Status(keyword(info.GetSearchAttributes(), workflows.AttrStatus))
}

// pipelineRef refuses workflows that are no runs.
func pipelineRef(arg string, info *workflowpb.WorkflowExecutionInfo) (Ref, error) {
	if t := info.GetType().GetName(); t != workflows.PipelineWorkflow {
		reason := "its workflow is of the type " + t
		if t == workflows.StageWorkflow {
			reason = "it is a stage of " + info.GetParentExecution().GetWorkflowId()
		}
		return Ref{}, &UnknownError{Arg: arg, Reason: reason}
	}
	return refOf(info), nil
}

func refOf(info *workflowpb.WorkflowExecutionInfo) Ref {
	return Ref{ID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId()}
}

// tooShort explains why something that looks like a prefix was not looked for.
func tooShort(arg string) string {
	if len(arg) < minPrefix && strings.Trim(arg, "0123456789abcdefABCDEF-") == "" {
		return fmt.Sprintf("give at least %d characters of a run id", minPrefix)
	}
	return ""
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// byPrefix looks among the newest runs.
func (c *Client) byPrefix(ctx context.Context, prefix string) (Ref, error) {
	var found []Ref
	err := c.each(ctx, onlyPipelines, searched, func(info *workflowpb.WorkflowExecutionInfo) {
		ref := refOf(info)
		request := strings.ToLower(ref.ID[strings.LastIndexByte(ref.ID, '/')+1:])
		if strings.HasPrefix(ref.RunID, prefix) || uuidText.MatchString(request) && strings.HasPrefix(request, prefix) {
			found = append(found, ref)
		}
	})
	switch {
	case err != nil:
		return Ref{}, fmt.Errorf("looking for run %s: %w", prefix, err)
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return Ref{}, &UnknownError{Arg: prefix}
	}
	return Ref{}, &UnknownError{Arg: prefix, Candidates: found[:min(len(found), maxCandidates)]}
}

// each calls do for up to most executions that match a visibility query.
func (c *Client) each(ctx context.Context, query string, most int, do func(*workflowpb.WorkflowExecutionInfo)) error {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	var page []byte
	for seen := 0; seen < most; {
		resp, err := c.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: c.namespace, Query: query, NextPageToken: page, PageSize: int32(min(most-seen, 1000)),
		})
		if err != nil {
			return fmt.Errorf("listing workflows: %w", err)
		}
		for _, info := range resp.GetExecutions() {
			do(info)
		}
		seen += len(resp.GetExecutions())
		if page = resp.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	return nil
}

// describe is what the server itself knows of a workflow.
func (c *Client) describe(ctx context.Context, ref Ref) (*workflowpb.WorkflowExecutionInfo, error) {
	resp, err := c.describeAll(ctx, ref)
	return resp.GetWorkflowExecutionInfo(), err
}

// describeAll is describe with what is pending.
func (c *Client) describeAll(ctx context.Context, ref Ref) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	resp, err := c.temporal.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: c.namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: ref.ID, RunId: ref.RunID},
	})
	if err != nil {
		return nil, fmt.Errorf("describing workflow %s: %w", ref.ID, err)
	}
	return resp, nil
}

func isNotFound(err error) bool {
	var notFound *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument // a run id that is no UUID
	return errors.As(err, &notFound) || errors.As(err, &invalid)
}
