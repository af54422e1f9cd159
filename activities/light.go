package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"belay.run/internal/run"
)

// Light holds the steps that need neither a process nor a workspace.
type Light struct{}

// NewLight returns Light.
func NewLight() *Light { return &Light{} }

// RunLight runs one light step by the name of what it uses.
func (*Light) RunLight(ctx context.Context, in LightInput) (*StepResult, error) {
	if in.Uses == "noop" {
		now := time.Now()
		return &StepResult{Attempt: int(activity.GetInfo(ctx).Attempt), StartedAt: now, EndedAt: now}, nil
	}
	return nil, fail(run.Cause{Trigger: run.TriggerInvalid, Source: in.Node, Message: "uses: " + in.Uses + " is not known to this worker"})
}
