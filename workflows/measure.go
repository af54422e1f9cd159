package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/measure"
	"belay.run/internal/run"
)

// What workflows measure goes through the SDK's handler, which takes nothing in
// a replay. A last workflow task that Temporal gives to another worker once more
// is measured there too.

// measureEnd measures a node that has ended. One that never began took no time.
func measureEnd(ctx workflow.Context, of string, status run.Status, cause *run.Cause, began, ended *time.Time) {
	tags := map[string]string{measure.Of: of, measure.Outcome: string(status)}
	if cause != nil {
		tags[measure.Trigger] = string(cause.Trigger)
	}
	took := time.Duration(0)
	if began != nil && ended != nil {
		took = ended.Sub(*began)
	}
	workflow.GetMetricsHandler(ctx).WithTags(tags).Timer(measure.Ended).Record(took)
}

// measure measures a run that has ended, and its stages that never began: the
// others did that themselves.
func (p *pipeline) measure(ctx workflow.Context, doc *run.Document) {
	measureEnd(ctx, measure.Run, doc.Status, doc.Cause, doc.StartedAt, doc.EndedAt)
	measureStop(ctx, measure.Run, &p.halt)
	for i := range doc.Stages {
		if s := &doc.Stages[i]; s.WorkflowID == "" {
			measureEnd(ctx, measure.Stage, s.Status, s.Cause, nil, nil)
		}
	}
}

// measureStep measures a step that has ended, and its retries.
func (s *stage) measureStep(ctx workflow.Context, doc *run.Step) {
	cause := doc.Cause
	if cause == nil && doc.Status == run.Cancelled {
		cause = s.halt.cause
	}
	measureEnd(ctx, measure.Step, doc.Status, cause, doc.StartedAt, doc.EndedAt)
	if doc.Attempts > 1 {
		of := map[string]string{measure.Of: measure.Step}
		workflow.GetMetricsHandler(ctx).WithTags(of).Counter(measure.Retried).Inc(int64(doc.Attempts - 1))
	}
}

// measureStop measures how long a node took to end that was told to: by a cancel,
// or since its time was over.
func measureStop(ctx workflow.Context, of string, h *halt) {
	if h.status == run.Cancelled || h.status == run.TimedOut {
		measureTook(ctx, measure.Stopped, of, h.at)
	}
}

// measureTook measures the time since.
func measureTook(ctx workflow.Context, what, of string, since time.Time) {
	tags := map[string]string{measure.Of: of}
	workflow.GetMetricsHandler(ctx).WithTags(tags).Timer(what).Record(workflow.Now(ctx).Sub(since))
}
