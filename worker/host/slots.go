package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"

	"belay.run/internal/workspace"
)

// fullEvery is how often a host that is full looks whether it still is.
const fullEvery = 200 * time.Millisecond

// stageSlots lets the shared queues be polled only while this host has room for
// another stage. A stage that waits in the queue can go to any host; one that
// is taken has its sources here, and waits for a process slot of this host.
// Polls that were open when the host filled up may still bring a stage each.
type stageSlots struct {
	host *workspace.Host
	most int

	mu     sync.Mutex
	taking int // activities that take a stage right now
}

var _ worker.SlotSupplier = (*stageSlots)(nil)

// taking marks the permit of a poll that brought a stage.
type taking struct{}

// tuner gives the slots to a worker of activities; it has no other tasks.
func (s *stageSlots) tuner() (worker.WorkerTuner, error) {
	others, err := worker.NewFixedSizeSlotSupplier(bindActivities)
	if err != nil {
		return nil, fmt.Errorf("making slots: %w", err)
	}
	return worker.NewCompositeTuner(worker.CompositeTunerOptions{
		ActivitySlotSupplier: s, WorkflowSlotSupplier: others, LocalActivitySlotSupplier: others,
		NexusSlotSupplier: others, SessionActivitySlotSupplier: others,
	})
}

// ReserveSlot waits until there is room.
func (s *stageSlots) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	if s.room() {
		return &worker.SlotPermit{}, nil
	}
	tick := time.NewTicker(fullEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.room() {
				return &worker.SlotPermit{}, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryReserveSlot is for activities that a workflow's worker hands to itself,
// which never are those that take stages.
func (s *stageSlots) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit { return nil }

// MarkSlotUsed counts a stage that is being taken.
func (s *stageSlots) MarkSlotUsed(info worker.SlotMarkUsedInfo) {
	info.Permit().UserData = taking{}
	s.add(1)
}

// ReleaseSlot no longer counts it: it is bound now, or was not taken.
func (s *stageSlots) ReleaseSlot(info worker.SlotReleaseInfo) {
	if _, used := info.Permit().UserData.(taking); used {
		info.Permit().UserData = nil
		s.add(-1)
	}
}

// MaxSlots is how many there are.
func (s *stageSlots) MaxSlots() int { return s.most }

func (s *stageSlots) add(d int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking += d
}

// room reports whether one more stage fits. Where the records cannot be read
// the sweep says so, and taking a stage fails with a clear error.
func (s *stageSlots) room() bool {
	bound, err := s.host.Count()
	s.mu.Lock()
	defer s.mu.Unlock()
	return err != nil || bound+s.taking < s.most
}
