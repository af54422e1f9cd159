package activities

import (
	"errors"
	"time"

	"belay.run/internal/cancels"
)

// toldWithin bounds how long an attempt that was ended early waits until
// Temporal knows why.
const toldWithin = time.Minute

// EndRun ends what runs here of the body of a cancelled run, before its stages
// have heard of the cancel: hundreds of processes are gone before the first of
// their ends is recorded.
func EndRun(s *Steps, cancel cancels.Cancel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, a := range s.running {
		if key.runKey == cancel.RunKey && a.in.Body {
			a.stopEarly(&stopError{stopCancelled, cancel.Cause})
		}
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
