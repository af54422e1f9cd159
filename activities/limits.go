package activities

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"belay.run/internal/proc"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// firstDiskLook and diskLook are when the disk of a stage is measured, and
	// how long after that at the earliest again.
	firstDiskLook = 500 * time.Millisecond
	diskLook      = 2 * time.Second
	// diskShare is how many times as long as a measurement the pause after it
	// is.
	diskShare = 20
)

// limits are those of the step's file, none where it sets none.
func (a *attempt) limits() spec.Limits {
	if l := a.in.Step.Limits; l != nil {
		return *l
	}
	return spec.Limits{}
}

// procLimits are what the next process of the step may use: of the time to
// compute, what the processes before it have left.
func (a *attempt) procLimits() proc.Limits {
	l := a.limits()
	out := proc.Limits{Memory: l.Memory, PIDs: l.PIDs, CPU: l.CPUTime}
	if out.CPU > 0 {
		out.CPU = max(out.CPU-a.computed(), time.Nanosecond)
	}
	return out
}

// computed is the time that the step's processes before this one have used.
func (a *attempt) computed() time.Duration {
	return time.Duration(a.res.CPU * float64(time.Second))
}

// excess is the cause of a step of which a process went over a limit, having
// computed for so long before.
func excess(e proc.Excess, before time.Duration) run.Cause {
	if e.Of == proc.LimitedCPU {
		e.Limit, e.Used = e.Limit+int64(before), e.Used+int64(before)
	}
	return run.Cause{Trigger: run.TriggerLimitExceeded, Message: fmt.Sprintf("%s: %s", e.Of, e)}
}

// onExcess ends the attempt when its process goes over a limit: at once where
// others suffer while it goes on, else as at a timeout.
func (a *attempt) onExcess() func(proc.Excess) {
	before := a.computed()
	return func(e proc.Excess) {
		kind := stopOverload
		if e.Of == proc.LimitedCPU {
			kind = stopLimit
		}
		a.stop(&stopError{kind, excess(e, before)})
	}
}

// metered counts what goes to w towards the output of the step, which ends when
// that is more than its limit.
func (a *attempt) metered(w io.Writer) io.Writer {
	if a.limits().Output == 0 {
		return w
	}
	return &meter{w, a}
}

type meter struct {
	io.Writer

	attempt *attempt
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	a, limit := m.attempt, m.attempt.limits().Output
	if printed := a.printed.Add(int64(len(p))); printed > limit {
		a.stop(&stopError{stopLimit, run.Cause{
			Trigger: run.TriggerLimitExceeded,
			Message: fmt.Sprintf("output: it printed %s; the limit is %s", proc.Bytes(printed), proc.Bytes(limit)),
		}})
	}
	return m.Writer.Write(p)
}

// watchDisk ends the attempt when its stage takes more disk than the step
// allows, until the function that it returns is called, which looks once more.
func (a *attempt) watchDisk() (last func()) {
	if a.limits().Disk == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for wait := firstDiskLook; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			began := time.Now()
			_ = a.lookAtDisk(ctx) // the last look tells
			wait = max(diskLook, diskShare*time.Since(began))
		}
	})
	return func() {
		cancel(nil)
		watching.Wait()
		if err := a.lookAtDisk(a.ctx); err != nil {
			a.note("the limit of disk could not be looked after: %v", err)
		}
	}
}

// lookAtDisk measures the disk of the stage once.
func (a *attempt) lookAtDisk(ctx context.Context) error {
	limit := a.limits().Disk
	used, err := a.steps.Host.Size(ctx, a.dirs.Root, limit)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // stopped meanwhile, or over: what was measured does not count
	case err != nil:
		return err
	case used > limit:
		a.stop(&stopError{stopOverload, run.Cause{
			Trigger: run.TriggerLimitExceeded,
			Message: fmt.Sprintf("disk: its stage takes %s or more; the limit is %s", proc.Bytes(used), proc.Bytes(limit)),
		}})
	}
	return nil
}
