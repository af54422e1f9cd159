package workspace

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSize(t *testing.T) {
	t.Parallel()
	const all = math.MaxInt64
	const mib = 1 << 20
	// laid is a stage whose workspace is empty, and what it takes so.
	laid := func(t *testing.T) (*Host, Dirs, int64) {
		t.Helper()
		h := open(t)
		d := bind(t, h, "k", "s")
		empty, err := h.Size(t.Context(), d.Root, all)
		require.NoError(t, err)
		return h, d, empty
	}
	grown := func(t *testing.T, h *Host, d Dirs, empty int64) int64 {
		t.Helper()
		n, err := h.Size(t.Context(), d.Root, all)
		require.NoError(t, err)
		return n - empty
	}

	t.Run("CountsAllDirectoriesOfTheStage", func(t *testing.T) {
		t.Parallel()
		h, d, empty := laid(t)
		for _, dir := range []string{d.Workspace, d.Home, d.Temp} {
			write(t, filepath.Join(dir, "f"), strings.Repeat("x", mib))
		}
		require.GreaterOrEqual(t, grown(t, h, d, empty), int64(3*mib))
	})

	t.Run("CountsAFileWithSeveralNamesOnce", func(t *testing.T) {
		t.Parallel()
		h, d, empty := laid(t)
		write(t, filepath.Join(d.Workspace, "f"), strings.Repeat("x", mib))
		for _, name := range []string{"g", "h", "i"} {
			require.NoError(t, os.Link(filepath.Join(d.Workspace, "f"), filepath.Join(d.Workspace, name)))
		}
		require.Less(t, grown(t, h, d, empty), int64(2*mib))
	})

	t.Run("CountsNothingThatAFileOnlySeemsToHold", func(t *testing.T) {
		t.Parallel()
		h, d, empty := laid(t)
		f, err := os.Create(filepath.Join(d.Workspace, "sparse"))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(1<<30))
		require.NoError(t, f.Close())
		require.Less(t, grown(t, h, d, empty), int64(mib))
	})

	t.Run("FollowsNoLinks", func(t *testing.T) {
		t.Parallel()
		h, d, empty := laid(t)
		outside := t.TempDir()
		write(t, filepath.Join(outside, "f"), strings.Repeat("x", mib))
		require.NoError(t, os.Symlink(outside, filepath.Join(d.Workspace, "link")))
		require.NoError(t, os.Symlink("/", filepath.Join(d.Workspace, "root")))
		require.Less(t, grown(t, h, d, empty), int64(mib))
	})

	t.Run("CountsWhatLiesDeep", func(t *testing.T) {
		t.Parallel()
		h, d, empty := laid(t)
		deep := filepath.Join(d.Workspace, strings.Repeat("d/", 200))
		require.NoError(t, os.MkdirAll(deep, 0o700))
		write(t, filepath.Join(deep, "f"), strings.Repeat("x", mib))
		require.GreaterOrEqual(t, grown(t, h, d, empty), int64(mib))
	})

	t.Run("StopsWhereItIsEnough", func(t *testing.T) {
		t.Parallel()
		h, d, _ := laid(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			require.NoError(t, os.Mkdir(filepath.Join(d.Workspace, name), 0o700))
			write(t, filepath.Join(d.Workspace, name, "f"), strings.Repeat("x", mib))
		}
		n, err := h.Size(t.Context(), d.Root, mib/2)
		require.NoError(t, err)
		require.Greater(t, n, int64(mib/2))
		require.Less(t, n, int64(3*mib))
	})

	t.Run("IsNothingWhereNothingIs", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		n, err := h.Size(t.Context(), h.Dirs("k", "gone").Root, all)
		require.NoError(t, err)
		require.Zero(t, n)
	})

	t.Run("RefusesWhatIsElsewhere", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		for _, path := range []string{"/", h.Dir(), filepath.Join(h.Dir(), "..")} {
			_, err := h.Size(t.Context(), path, all)
			require.Error(t, err, path)
		}
	})

	t.Run("EndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		h, d, _ := laid(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h.Size(ctx, d.Root, all)
		require.ErrorIs(t, err, context.Canceled)
	})
}
