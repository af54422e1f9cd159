// Package task is what a light task is: an I/O-bound piece of work, well under a
// second, nearly all of it waiting, that needs neither a process nor a
// workspace. It holds the types of tasks, what they may be given, and what they
// come to. How many run at once, and when, is the executor's.
package task

import (
	"encoding/json"
	"fmt"
	"time"

	"belay.run/internal/run"
)

// MaxTimeout bounds the timeout of a task.
const MaxTimeout = time.Hour

// Task is one light task, as a step, a line of a batch or a request holds it.
type Task struct {
	// ID names the task in its batch, or by itself.
	ID string `json:"id"`
	// Type is the name of the type of task, such as "http".
	Type string `json:"type"`
	// With is what the type is given, an object by the type's parameters.
	With json.RawMessage `json:"with,omitempty"`
	// Key is the business key under which the task is done once; empty: each
	// time.
	Key string `json:"key,omitempty"`
	// Priority puts tasks that wait in order: higher goes first, 0 is usual,
	// from -100 to 100.
	Priority int `json:"priority,omitempty"`
	// Timeout bounds the task from its start, at most MaxTimeout; 0: the executor's
	// usual.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Origin says for whom the task runs.
	Origin Origin `json:"origin,omitzero"`
}

// Origin says for whom a task runs. It goes with the task into logs and into the
// headers of what it sends; of it only the tenant is ever a limit's name.
type Origin struct {
	Tenant   string `json:"tenant,omitempty"`
	Project  string `json:"project,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	// Run is a run key, or the id of a batch.
	Run  string `json:"run,omitempty"`
	Node string `json:"node,omitempty"`
	// Sender is who asked for it, where that is known.
	Sender string `json:"sender,omitempty"`
	// TraceParent is a W3C trace context, as the header traceparent has it.
	TraceParent string `json:"traceparent,omitempty"`
	// IdempotencyKey is the same for each attempt at the task.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Listed are the secrets that a step lists, which it may use as it says; nil
	// where no step asks. It is never written down: whoever runs the step says it,
	// and nobody can say it of a task of his own.
	Listed []string `json:"-"`
}

// Status is how a task ended.
type Status string

// The ends of a task.
const (
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	// Duplicate: a task with its key was done, or is under way.
	Duplicate Status = "duplicate"
	// Skipped: it was taken, and given back before it began, as its executor
	// closed or its caller went away.
	Skipped Status = "skipped"
)

// Result is what a task came to.
type Result struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status Status `json:"status"`
	// Output is what the type found out; see the type. It holds no secret.
	Output Output `json:"output,omitempty"`
	// Error is set where Status is Failed or Skipped.
	Error *Failure `json:"error,omitempty"`
	// Retried says that an earlier attempt may have reached the target, or this one
	// more than once.
	Retried bool `json:"retried,omitempty"`
	// Waited is the time from its submission to its start, Took that from its
	// start to its end.
	Waited time.Duration `json:"waited_ns,omitempty"`
	Took   time.Duration `json:"took_ns,omitempty"`
}

// Output is what a task found out, by name: text, whole numbers, truth values.
// In JSON it is at most 64 KiB.
type Output map[string]any

// FallbackOutput is true in the output of a task whose target was not well, where
// the fallback of its type stood in.
const FallbackOutput = "fallback"

// FellBack reports whether the output is the fallback's.
func (o Output) FellBack() bool { return o[FallbackOutput] == true }

// Failure is why a task failed. It is an error.
type Failure struct { //nolint:errname // it is a part of a result, and only then an error
	// Trigger is the cause's: dependency_unavailable where the target could not
	// be reached or was not well, step_timeout, invalid where the task is wrong,
	// exit_code where the target answered otherwise than the task demands,
	// limit_exceeded, maintenance, process_crashed after a panic.
	Trigger run.Trigger `json:"trigger"`
	// Message says what was done, found and expected. It holds no secret.
	Message string `json:"message"`
	// Retryable says that the same task may succeed later.
	Retryable bool `json:"retryable,omitempty"`
	// Fault says that the target is to blame, for its circuit breaker: it did
	// not answer, or said that it is not well.
	Fault bool `json:"-"`
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// Failf returns a failure that is neither retryable nor the target's fault.
func Failf(trigger run.Trigger, format string, args ...any) *Failure {
	return &Failure{Trigger: trigger, Message: fmt.Sprintf(format, args...)}
}

// Faultf returns a failure that is the target's fault, and may pass.
func Faultf(format string, args ...any) *Failure {
	return &Failure{
		Trigger: run.TriggerDependencyUnavailable, Message: fmt.Sprintf(format, args...), Retryable: true, Fault: true,
	}
}
