package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"belay.run/internal/run"
)

// stopKind is why an attempt must end before its process does by itself.
type stopKind int

const (
	// stopCancelled: Temporal has recorded a cancel; the attempt confirms it.
	stopCancelled stopKind = iota
	// stopClosed: the workflow is closed; nobody reads the result.
	stopClosed
	// stopShutdown: the worker stops; the tree is killed without grace.
	stopShutdown
	// stopTimeout: the step's or the command's own clock ran out.
	stopTimeout
	// stopOperator: the activity was paused or reset by hand.
	stopOperator
	// stopTakenOver: the step's claim is another's.
	stopTakenOver
	// stopLimit: the step went over a limit; stopOverload: over one that others
	// suffer from, so that the tree is killed without grace.
	stopLimit
	stopOverload
	// stopService: a service that the step needs has ended.
	stopService
)

// atOnce reports whether the tree is killed without grace.
func (k stopKind) atOnce() bool { return k == stopShutdown || k == stopOverload }

// stopError is the cause with which an attempt's context is cancelled.
type stopError struct {
	kind  stopKind
	cause run.Cause
}

func (e *stopError) Error() string { return e.cause.String() }

// classify tells what an error of a heartbeat, or the cause of a cancelled
// activity context, asks of the attempt; nil where it asks nothing: a heartbeat
// that failed says only that Temporal could not be reached, and the supervisor's
// dead-man timer ends the step where that lasts.
func classify(err error) *stopError {
	var closed *serviceerror.NotFound
	switch {
	case err == nil:
		return nil
	case temporal.IsCanceledError(err):
		return &stopError{stopCancelled, run.Cause{Trigger: run.TriggerUser}}
	case errors.As(err, &closed):
		return &stopError{stopClosed, run.Cause{Trigger: run.TriggerUser, Message: "the workflow is closed"}}
	case errors.Is(err, worker.ErrWorkerShutdown):
		return &stopError{stopShutdown, run.Cause{Trigger: run.TriggerWorkerLost, Message: "the worker was stopped"}}
	case errors.Is(err, activity.ErrActivityPaused), errors.Is(err, activity.ErrActivityReset):
		return &stopError{stopOperator, run.Cause{Trigger: run.TriggerMaintenance, Message: err.Error()}}
	case errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return nil
}

const (
	firstHeartbeat  = time.Second
	heartbeatPeriod = 5 * time.Second
	// deadMan is how long a step lives on without an acknowledged heartbeat.
	// Temporal may start another attempt 25 s after the last one at the
	// earliest, the grace period not counted.
	deadMan = 20 * time.Second
)

// keepInTouch sends heartbeats for the attempt until done is closed, and stops
// the attempt where Temporal asks for it, by a heartbeat's answer or by the
// activity's context. The SDK's own RecordHeartbeat does not serve here: it
// batches, stops after a cancel, and cancels the activity when a call fails.
func (a *attempt) keepInTouch(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(firstHeartbeat)
	defer timer.Stop()
	asked := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-asked:
			asked = nil
			if stop := classify(context.Cause(ctx)); stop != nil {
				a.stop(stop)
			}
		case <-timer.C:
			a.heartbeat(ctx)
			timer.Reset(heartbeatPeriod)
		}
	}
}

// heartbeat sends one heartbeat, also after a cancel: the ending of a step is
// part of its attempt. It reports whether Temporal has taken it.
func (a *attempt) heartbeat(ctx context.Context) bool {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatPeriod)
	defer cancel()
	err := a.beat(call, a.progress())
	stop := classify(err)
	taken := err == nil || (stop != nil && stop.kind == stopCancelled)
	if taken {
		a.keepAlive()
	}
	if stop != nil {
		a.stop(stop)
	}
	return taken
}
