package activities

import (
	"errors"
	"sync"
	"time"

	"belay.run/internal/cancels"
)

// toldWithin bounds how long an attempt that was ended early waits until
// Temporal knows why.
const toldWithin = time.Minute

// EndRun ends what runs here of the body of a cancelled run, before its stages
// have heard of the cancel: hundreds of processes are gone before the first of
// their ends is recorded. It returns when they are, or [cancels.Within] is over.
func EndRun(s *Steps, cancel cancels.Cancel) {
	c := &crowd{over: make(chan struct{})}
	s.mu.Lock()
	for key, a := range s.running {
		if key.runKey == cancel.RunKey && a.in.Body {
			a.joinCrowd(c)
			a.stopEarly(&stopError{stopCancelled, cancel.Cause})
		}
	}
	s.mu.Unlock()
	patience := time.NewTimer(cancels.Within)
	defer patience.Stop()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.processes.Wait()
	}()
	select {
	case <-gone:
	case <-patience.C:
	}
	close(c.over)
}

// crowd are attempts that were ended at once: what is to be done after a process
// waits until the processes of all are gone, which needs the CPUs now.
type crowd struct {
	processes sync.WaitGroup
	over      chan struct{}
}

// joinCrowd counts the attempt's process, if it has one.
func (a *attempt) joinCrowd(c *crowd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil && a.crowd == nil {
		a.crowd = c
		c.processes.Add(1)
	}
}

// leaveCrowd is called when the attempt's process is gone.
func (a *attempt) leaveCrowd() {
	a.mu.Lock()
	c := a.crowd
	a.process, a.crowd = nil, nil
	a.mu.Unlock()
	if c != nil {
		c.processes.Done()
		<-c.over
	}
}

// awaitTold holds back the end of an attempt that was ended early until its
// stage has asked for it: a stage that has not heard of the cancel would take it
// for a failure, and would act on that.
func (a *attempt) awaitTold() {
	if !a.early.Load() {
		return
	}
	patience := time.NewTimer(toldWithin)
	defer patience.Stop()
	select {
	case <-a.told:
	case <-patience.C:
	}
}

// measureStop measures the end of an attempt that was told to stop, by a cancel or
// since its time was over.
func (a *attempt) measureStop(err error) {
	stop, told := errors.AsType[*stopError](err)
	if at := a.toldAt.Load(); told && at != 0 && (stop.kind == stopCancelled || stop.kind == stopTimeout) {
		a.steps.Meter.Stopped(time.Since(time.Unix(0, at)))
	}
}
