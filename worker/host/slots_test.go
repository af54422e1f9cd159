package host

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"belay.run/internal/workspace"
)

// permitInfo is what the SDK says of a permit.
type permitInfo struct {
	worker.SlotMarkUsedInfo

	permit *worker.SlotPermit
}

func (p permitInfo) Permit() *worker.SlotPermit { return p.permit }

type releaseInfo struct {
	worker.SlotReleaseInfo

	permit *worker.SlotPermit
}

func (p releaseInfo) Permit() *worker.SlotPermit { return p.permit }

func TestStageSlots(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*workspace.Host, *stageSlots) {
		t.Helper()
		h, err := workspace.Open(t.TempDir())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		return h, &stageSlots{host: h, most: 2}
	}
	bound := func(t *testing.T, h *workspace.Host, node string) {
		t.Helper()
		_, err := h.Bind(t.Context(), workspace.Binding{RunKey: "run", Node: node, WorkflowID: "wf"})
		require.NoError(t, err)
	}
	full := func(t *testing.T, s *stageSlots) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := s.ReserveSlot(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}

	t.Run("WaitsWhileTheHostIsFull", func(t *testing.T) {
		t.Parallel()
		h, s := setup(t)
		bound(t, h, "a")
		_, err := s.ReserveSlot(t.Context(), nil)
		require.NoError(t, err)
		bound(t, h, "b")
		full(t, s)
		reserved := make(chan error, 1)
		go func() {
			_, err := s.ReserveSlot(t.Context(), nil)
			reserved <- err
		}()
		require.NoError(t, h.Release(t.Context(), "run", "a"))
		require.NoError(t, <-reserved)
	})

	t.Run("CountsStagesThatAreBeingTaken", func(t *testing.T) {
		t.Parallel()
		h, s := setup(t)
		bound(t, h, "a")
		permit, err := s.ReserveSlot(t.Context(), nil)
		require.NoError(t, err)
		s.MarkSlotUsed(permitInfo{permit: permit})
		full(t, s)
		s.ReleaseSlot(releaseInfo{permit: permit})
		_, err = s.ReserveSlot(t.Context(), nil)
		require.NoError(t, err)
	})

	t.Run("APollThatBroughtNothingCountsNothing", func(t *testing.T) {
		t.Parallel()
		_, s := setup(t)
		for range 5 {
			permit, err := s.ReserveSlot(t.Context(), nil)
			require.NoError(t, err)
			s.ReleaseSlot(releaseInfo{permit: permit})
		}
		require.Zero(t, s.taking)
		require.Nil(t, s.TryReserveSlot(nil))
	})
}
