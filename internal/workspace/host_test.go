package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("KeepsItsIDAndClosesItToOthers", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "deep", "state")
		h, err := Open(dir)
		require.NoError(t, err)
		id := h.ID()
		require.Len(t, id, 12)
		require.NotEmpty(t, h.Boot())
		require.Equal(t, "belay-host/"+id+"/"+h.Boot(), h.Queue())
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
		require.DirExists(t, h.Cache())
		require.NoError(t, h.Close())
		require.NoError(t, h.Close(), "closing twice")

		again := reopen(t, dir)
		require.Equal(t, id, again.ID())
		require.NotEqual(t, id, open(t).ID())
	})

	t.Run("TightensADirectoryThatWasOpen", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o755))
		reopen(t, dir)
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	})

	t.Run("RefusesASecondWorkerAndNamesTheFirst", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		_, err := Open(h.Dir())
		var locked *LockedError
		require.ErrorAs(t, err, &locked)
		require.ErrorContains(t, err, fmt.Sprintf("pid %d ", os.Getpid()))
		require.ErrorContains(t, err, h.Dir())

		out, err := child(t, "open", 0, h.Dir())
		require.Error(t, err)
		require.Contains(t, out, fmt.Sprintf("pid %d ", os.Getpid()))

		require.NoError(t, h.Close())
		reopen(t, h.Dir())
	})

	t.Run("AWorkerThatDiedHoldsNothing", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		out, err := child(t, "die-bound", 0, dir)
		require.NoError(t, err, out)
		h := reopen(t, dir)
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 1)
		require.Equal(t, "build", bindings[0].Node)
	})

	t.Run("DropsWhatAKilledWorkerHadHalfWritten", func(t *testing.T) {
		t.Parallel()
		h, err := Open(t.TempDir())
		require.NoError(t, err)
		write(t, filepath.Join(h.Dir(), bindingsDir, newPrefix+"1"), "half")
		write(t, filepath.Join(h.Dir(), newPrefix+"2"), "half")
		require.NoError(t, h.Close())
		reopen(t, h.Dir())
		require.Empty(t, names(t, filepath.Join(h.Dir(), bindingsDir)))
		require.NoFileExists(t, filepath.Join(h.Dir(), newPrefix+"2"))
	})

	t.Run("RefusesAnIDThatIsNone", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, filepath.Join(dir, idFile), "not/an id\n")
		_, err := Open(dir)
		require.ErrorContains(t, err, "not/an id")
		require.ErrorContains(t, err, "remove the file")
		// And lets go of the lock.
		require.NoError(t, os.Remove(filepath.Join(dir, idFile)))
		reopen(t, dir)
	})

	t.Run("RefusesAFileOrALinkInPlaceOfADirectory", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "file")
		write(t, file, "")
		_, err := Open(file)
		require.ErrorIs(t, err, unix.ENOTDIR)

		dir := t.TempDir()
		require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, stagesDir)))
		_, err = Open(dir)
		require.ErrorContains(t, err, "is not a directory")
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for errno, hint := range map[unix.Errno]string{
		unix.ENOSPC: "the disk is full",
		unix.EDQUOT: "quota",
		unix.EROFS:  "read-only",
		unix.EACCES: "must own it",
	} {
		err := explain("/state", "opening", &fs.PathError{Op: "write", Path: "/state/x", Err: errno})
		require.ErrorIs(t, err, errno)
		require.ErrorContains(t, err, hint)
		require.ErrorContains(t, err, "opening state directory /state")
	}
	err := explain("/state", "opening", errors.New("other"))
	require.EqualError(t, err, "opening state directory /state: other")
	require.NoError(t, explain("/state", "opening", nil))
}

func TestNames(t *testing.T) {
	t.Parallel()

	t.Run("DifferByRunKeyAndNodeAlone", func(t *testing.T) {
		t.Parallel()
		seen := map[string]string{}
		for _, key := range []string{"r1", "r2"} {
			for _, node := range []string{
				"build", "Build", "build/x", "build-x", "build[os=linux,arch=a]", "build[os=linux]", "build[os=%2F]",
				"", "日本", "../../etc", ".", "..", "a\nb", strings.Repeat("long", 500), strings.Repeat("long", 501),
			} {
				name := stageName(key, node)
				require.Equal(t, name, stageName(key, node))
				require.Regexp(t, `^[a-z0-9-]{1,24}-[0-9a-f]{16}$`, name)
				require.NotContains(t, seen, name, "%s and %s", node, seen[name])
				seen[name] = node
			}
		}
	})

	t.Run("TheBorderBetweenKeyAndNodeCounts", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, stageName("a", "bc"), stageName("ab", "c"))
	})
}
