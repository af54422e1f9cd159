package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBind(t *testing.T) {
	t.Parallel()

	t.Run("MakesTheDirectoriesAndKeepsThem", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		node := "build[arch=arm64,os=%2Flinux]"
		dirs := bind(t, h, "run", node)
		require.Equal(t, h.Dirs("run", node), dirs)
		for _, dir := range dirs.all() {
			require.DirExists(t, dir)
			require.True(t, strings.HasPrefix(dir, dirs.Root))
		}
		write(t, filepath.Join(dirs.Workspace, "kept"), "1")

		require.Equal(t, dirs, bind(t, h, "run", node))
		require.FileExists(t, filepath.Join(dirs.Workspace, "kept"))
	})

	t.Run("RemembersWhoIsBoundInOrder", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
		for i, node := range []string{"z", "a", "m"} {
			_, err := h.Bind(t.Context(), Binding{
				RunKey: "run", Node: node, WorkflowID: "wf-" + node, RunID: "r1", At: at.Add(time.Duration(i) * time.Second),
			})
			require.NoError(t, err)
		}
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 3)
		require.Equal(t, Binding{RunKey: "run", Node: "z", WorkflowID: "wf-z", RunID: "r1", At: at, Boot: h.Boot()}, bindings[0])
		require.Equal(t, "a", bindings[1].Node)
		require.Equal(t, "m", bindings[2].Node)
	})

	t.Run("BoundAgainItTakesTheNewRunAndKeepsTheTime", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		first := time.Now()
		for i, id := range []string{"r1", "r2"} {
			_, err := h.Bind(t.Context(), Binding{RunKey: "run", Node: "n", WorkflowID: "wf", RunID: id, At: first.Add(time.Duration(i) * time.Hour)})
			require.NoError(t, err)
		}
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 1)
		require.Equal(t, "r2", bindings[0].RunID)
		require.True(t, bindings[0].At.Equal(first))
	})

	t.Run("AfterAnotherBootItStartsEmpty", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		dirs := bind(t, h, "run", "n")
		write(t, filepath.Join(dirs.Workspace, "old"), "")
		h.boot = "another"
		bind(t, h, "run", "n")
		require.Empty(t, names(t, dirs.Workspace))
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Equal(t, "another", bindings[0].Boot)
	})

	t.Run("NeverTakesOverWhatHasNoRecord", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		dirs := h.Dirs("run", "n")
		require.NoError(t, os.MkdirAll(dirs.Workspace, 0o700))
		write(t, filepath.Join(dirs.Workspace, "stray"), "")
		bind(t, h, "run", "n")
		require.Empty(t, names(t, dirs.Workspace))
	})

	t.Run("NeedsToKnowWhom", func(t *testing.T) {
		t.Parallel()
		_, err := open(t).Bind(t.Context(), Binding{Node: "n"})
		require.ErrorContains(t, err, "run key")
	})
}

func TestRelease(t *testing.T) {
	t.Parallel()

	t.Run("LeavesNothingAndMayBeRepeated", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		dirs := bind(t, h, "run", "n")
		write(t, filepath.Join(dirs.Workspace, "f"), "")
		other := bind(t, h, "run", "other")
		require.NoError(t, h.Release(t.Context(), "run", "n"))
		require.NoError(t, h.Release(t.Context(), "run", "n"))
		require.NoError(t, h.Release(t.Context(), "run", "never bound"))
		require.NoDirExists(t, dirs.Root)
		require.DirExists(t, other.Workspace)
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 1)

		require.NoError(t, h.Release(t.Context(), "run", "other"))
		requireNothingLeft(t, h)
	})

	t.Run("ConcurrentWithBindsOneOfThemWins", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					_, err := h.Bind(t.Context(), Binding{RunKey: "run", Node: "n", WorkflowID: "wf"})
					require.NoError(t, err)
				}
			})
			wg.Go(func() {
				for range 20 {
					require.NoError(t, h.Release(t.Context(), "run", "n"))
				}
			})
		}
		wg.Wait()
		bindings, err := h.Bindings()
		require.NoError(t, err)
		_, statErr := os.Stat(h.Dirs("run", "n").Temp)
		require.Equal(t, len(bindings) == 1, statErr == nil, "a record and the directories, or neither")
		require.NoError(t, h.Release(t.Context(), "run", "n"))
		requireNothingLeft(t, h)
		require.Empty(t, h.busy.held)
	})

	t.Run("WaitsForItsTurnNoLongerThanItsContext", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		unlock, err := h.busy.lock(t.Context(), stageName("run", "n"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("out of patience"))
		defer cancel()
		require.ErrorContains(t, h.Release(ctx, "run", "n"), "out of patience")
		unlock()
		require.NoError(t, h.Release(t.Context(), "run", "n"))
	})
}
