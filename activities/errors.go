package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
)

// The type of every application error that leaves an activity or a workflow of
// Belay is the trigger of its cause: one list, in package run. Its details are
// one document: a StepResult from a step, a run.Stage from a stage, a
// run.Document from a pipeline.

// fail is an application error of the cause's trigger that Temporal does not
// retry.
func fail(cause run.Cause, details ...any) error {
	return temporal.NewApplicationErrorWithOptions(cause.Message, string(cause.Trigger),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: details})
}

// failRetryable is the same, retried as far as the step's retry policy allows.
func failRetryable(cause run.Cause, details ...any) error {
	return temporal.NewApplicationErrorWithOptions(cause.Message, string(cause.Trigger),
		temporal.ApplicationErrorOptions{Details: details})
}

// ErrLost is what an activity on a lost host is reported as inside workflows.
var ErrLost = errors.New("the host does not answer any more")
