package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/workflows"
)

const (
	// taskLook is how often it is looked what a task waits for.
	taskLook = time.Second
	// taskHeartbeat is how long the worker that has a task may be silent.
	taskHeartbeat = 12 * time.Second
	// taskWithin is a backstop for an attempt at a task: the longest timeout that
	// it may have, and the longest wait for room.
	taskWithin = 70 * time.Minute
	// pauseBetween and pauseMost are between two attempts.
	pauseBetween = time.Second
	pauseMost    = 30 * time.Second
)

// taskRun is a task that this command started, or found.
type taskRun struct {
	*app

	conn  *Connection
	flags *taskFlags
	task  task.Task
	sigs  <-chan os.Signal
	// id is that of its activity; own says that this command started it.
	id     string
	own    bool
	handle client.ActivityHandle

	mu sync.Mutex // of what is said
}

// run starts the task, follows it and shows what it came to.
func (r *taskRun) run(ctx context.Context) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	said := "task " + r.id + ": " + r.task.Type
	if !r.own {
		said = "task " + r.id + " was started before: following it"
	}
	r.say(said)
	res, err := r.follow(ctx)
	if errors.Is(err, errDetached) {
		return left("task", err, "")
	}
	end, err := r.ending(res, err)
	if err != nil {
		return err
	}
	return r.conclude(end)
}

// start starts the task. One request id always means one task: where there is
// one already, it is that which is followed.
func (r *taskRun) start(ctx context.Context) error {
	var light *activities.Light
	handle, err := r.conn.Temporal.ExecuteActivity(ctx, client.StartActivityOptions{
		ID:                     r.id,
		TaskQueue:              run.QueueLight,
		ScheduleToStartTimeout: r.flags.wait,
		StartToCloseTimeout:    taskWithin,
		HeartbeatTimeout:       taskHeartbeat,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: pauseBetween, MaximumInterval: pauseMost, MaximumAttempts: int32(r.flags.attempts),
		},
		ActivityIDReusePolicy:    enumspb.ACTIVITY_ID_REUSE_POLICY_REJECT_DUPLICATE,
		ActivityIDConflictPolicy: enumspb.ACTIVITY_ID_CONFLICT_POLICY_FAIL,
		Priority:                 run.Priority(r.flags.tenant, 0),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.AttrTenant).ValueSet(r.flags.tenant),
			temporal.NewSearchAttributeKeyKeyword(workflows.AttrProject).ValueSet(r.flags.project),
		),
		Summary: r.task.Type,
	}, light.RunTask, r.task)
	if there, ok := errors.AsType[*serviceerror.ActivityExecutionAlreadyStarted](err); ok {
		r.handle = r.conn.Temporal.GetActivityHandle(client.GetActivityHandleOptions{ActivityID: r.id, RunID: there.RunId})
		return nil
	}
	if err != nil {
		return fmt.Errorf("starting the task: %w", err)
	}
	r.handle, r.own = handle, true
	return nil
}

// say tells a person something. JSON has standard output for itself. What cannot
// be written here shows when the result is.
func (r *taskRun) say(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.progress(), text)
}

func (r *taskRun) progress() io.Writer {
	if *r.flags.output == formatJSON {
		return r.Err
	}
	return r.Out
}

// follow waits for the end of the task, or until signals say to leave it before,
// which is errDetached.
func (r *taskRun) follow(ctx context.Context) (*task.Result, error) {
	return attend(ctx, attendance{kind: "task", own: r.own, sigs: r.sigs, say: r.say, ask: r.ask, look: r.look},
		func(ctx context.Context) (*task.Result, error) {
			var res task.Result
			if err := r.handle.Get(ctx, &res); err != nil {
				return nil, err
			}
			return &res, nil
		})
}

func (r *taskRun) ask(ctx context.Context, sig os.Signal) error {
	err := r.handle.Cancel(ctx, client.CancelActivityOptions{Reason: whoami() + ": " + signalName(sig)})
	if err != nil {
		return fmt.Errorf("asking the task to cancel: %w", err)
	}
	return nil
}

// look says what the task waits for, each time that this is something else.
func (r *taskRun) look(ctx context.Context) {
	tick := time.NewTicker(taskLook)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// What cannot be read now is read the next time.
			d, err := r.handle.Describe(ctx, client.DescribeActivityOptions{IncludeHeartbeatDetails: true, IncludeLastFailure: true})
			if err != nil {
				continue
			}
			if now := waitsFor(d); now != "" && now != last {
				last = now
				r.say(now)
			}
		}
	}
}

// waitsFor is what a task waits for, in words; empty where it runs.
func waitsFor(d *client.ActivityExecutionDescription) string {
	var at activities.Progress
	switch d.RunState {
	case enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		if failed := d.GetLastFailure(); d.Attempt > 1 && failed != nil {
			return fmt.Sprintf("attempt %d failed, and it is tried again: %s", d.Attempt-1, lastWords(failed))
		}
		return "no worker has taken it yet; is one running? It waits until " +
			d.ScheduleTime.Add(d.ScheduleToStartTimeout).Local().Format(time.TimeOnly)
	case enumspb.PENDING_ACTIVITY_STATE_STARTED:
		if d.HasHeartbeatDetails() && d.GetHeartbeatDetails(&at) == nil && at.Phase == activities.PhaseFull {
			return "its worker has no room for more light tasks: it waits there"
		}
	default:
	}
	return ""
}
