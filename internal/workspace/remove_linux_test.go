package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"belay.run/internal/testkit/need"
)

// victim is a directory outside whose file must live.
func victim(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "precious"), "1")
	t.Cleanup(func() { require.FileExists(t, filepath.Join(dir, "precious")) })
	return dir
}

func TestRemove(t *testing.T) {
	t.Parallel()

	// tree returns a host and a directory in it to fill.
	tree := func(t *testing.T) (*Host, string) {
		t.Helper()
		h := open(t)
		dir := filepath.Join(h.Dir(), stagesDir, "tree")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		return h, dir
	}

	t.Run("NothingIsDone", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		require.NoError(t, h.Remove(t.Context(), filepath.Join(h.Dir(), stagesDir, "no", "such", "thing")))
	})

	t.Run("LinksAreRemovedAndNotFollowed", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		outside := victim(t)
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "to-dir")))
		require.NoError(t, os.Symlink(filepath.Join(outside, "precious"), filepath.Join(dir, "to-file")))
		require.NoError(t, os.Symlink("../..", filepath.Join(dir, "up")))
		require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
		require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
		require.NoError(t, os.Link(filepath.Join(outside, "precious"), filepath.Join(dir, "hard")))
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("ALinkInPlaceOfTheTreeItself", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		link := filepath.Join(h.Dir(), stagesDir, "link")
		require.NoError(t, os.Symlink(victim(t), link))
		require.NoError(t, h.Remove(t.Context(), link))
		_, err := os.Lstat(link)
		require.ErrorIs(t, err, os.ErrNotExist)
	})

	t.Run("ALinkOnTheWayDown", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		outside := victim(t)
		require.NoError(t, os.Symlink(outside, filepath.Join(h.Dir(), stagesDir, "link")))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.Error(t, h.Remove(ctx, filepath.Join(h.Dir(), stagesDir, "link", "precious")))
		require.Error(t, h.Empty(ctx, filepath.Join(h.Dir(), stagesDir, "link")))
	})

	t.Run("OutsideOfTheStateDirectoryIsRefused", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		outside := victim(t)
		for _, path := range []string{outside, h.Dir(), filepath.Join(h.Dir(), ".."), "/", ""} {
			require.ErrorContains(t, h.Remove(t.Context(), path), "not inside the state directory")
			require.ErrorContains(t, h.Empty(t.Context(), path), "not inside the state directory")
		}
	})

	t.Run("NamesOfAnyKind", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		for _, name := range []string{
			"new\nline", "\x01\xff\xfe", " ", "-rf", "--", "*", "'\"$(rm)", "...", "日本", strings.Repeat("x", 255), ".deep-1",
		} {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, name, name), 0o700))
			write(t, filepath.Join(dir, name, name, name), "")
		}
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("ThingsOfAnyKind", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, unix.Close(fd)) }()
		// A relative name, since that of a socket is at most 108 bytes long.
		d, err := os.Open(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/socket", d.Fd())}))
		f, err := os.Create(filepath.Join(dir, "open"))
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "read-only"), nil, 0o400))
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("DeeperThanDescriptorsAndPathsReach", func(t *testing.T) {
		t.Parallel()
		state := t.TempDir()
		dir := filepath.Join(state, stagesDir, "tree")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		const depth = 2000
		deepen(t, dir, depth, "directory")
		out, err := child(t, "remove with few descriptors", 0, state, dir)
		require.NoError(t, err, out)
		require.NoDirExists(t, dir)
	})

	t.Run("WideDirectories", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		for i := range 3 * readBatch {
			write(t, filepath.Join(dir, strconv.Itoa(i)), "")
		}
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("EmptyKeepsTheDirectory", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
		deepen(t, dir, 3*maxDepth, "d")
		before, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, h.Empty(t.Context(), dir))
		require.Empty(t, names(t, dir))
		after, err := os.Stat(dir)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after))
	})

	t.Run("WhatIsMountedInsideIsLeftAloneAndNamed", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		h, dir := tree(t)
		outside := victim(t)
		inside := filepath.Join(dir, "a", "mnt\n")
		mount(t, outside, inside)
		write(t, filepath.Join(dir, "a", "file"), "")
		write(t, filepath.Join(dir, "file"), "")
		err := h.Remove(t.Context(), dir)
		var mounted *MountedError
		require.ErrorAs(t, err, &mounted)
		require.Equal(t, inside, mounted.Path)
		require.ErrorContains(t, err, "umount")
		require.Equal(t, []string{"a"}, names(t, dir), "all else is gone")
		require.Equal(t, []string{"mnt\n"}, names(t, filepath.Join(dir, "a")))

		unmount(t, inside)
		require.NoError(t, h.Remove(t.Context(), dir))
	})

	t.Run("AMountedFileAndAnEmptyMountedDirectory", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		h, dir := tree(t)
		outside := victim(t)
		mount(t, filepath.Join(outside, "precious"), filepath.Join(dir, "file"))
		err := h.Remove(t.Context(), dir)
		var mounted *MountedError
		require.ErrorAs(t, err, &mounted)
		require.Equal(t, filepath.Join(dir, "file"), mounted.Path)
		unmount(t, mounted.Path)

		mount(t, t.TempDir(), filepath.Join(dir, "empty"))
		err = h.Remove(t.Context(), dir)
		require.ErrorAs(t, err, &mounted)
		require.Equal(t, filepath.Join(dir, "empty"), mounted.Path)
		unmount(t, mounted.Path)
		require.NoError(t, h.Remove(t.Context(), dir))
	})

	t.Run("AMountBelowWhatIsMovedUp", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		h, dir := tree(t)
		outside := victim(t)
		deep := dir + strings.Repeat("/d", 2*maxDepth)
		mount(t, outside, filepath.Join(deep, "mnt"))
		err := h.Remove(t.Context(), dir)
		var mounted *MountedError
		require.ErrorAs(t, err, &mounted)
		unmount(t, mounted.Path)
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("WhatIsMarkedImmutable", func(t *testing.T) {
		t.Parallel()
		need.Root(t)
		h := open(t)
		dirs := bind(t, h, "run", "n")
		sub := filepath.Join(dirs.Workspace, "sub")
		require.NoError(t, os.Mkdir(sub, 0o700))
		write(t, filepath.Join(sub, "file"), "")
		write(t, filepath.Join(sub, "log"), "")
		protect(t, filepath.Join(sub, "file"), unix.STATX_ATTR_IMMUTABLE)
		protect(t, filepath.Join(sub, "log"), unix.STATX_ATTR_APPEND)
		protect(t, sub, unix.STATX_ATTR_IMMUTABLE)
		protect(t, dirs.Root, unix.STATX_ATTR_IMMUTABLE)
		require.NoError(t, h.Release(t.Context(), "run", "n"))
		requireNothingLeft(t, h)
	})

	t.Run("WhatIsStillWrittenIsTriedAgain", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		sub := filepath.Join(dir, "sub")
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; !stop.Load(); i++ {
				// It fails once the directory is gone.
				if os.MkdirAll(sub, 0o700) == nil {
					_ = os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), nil, 0o600)
				}
			}
		}()
		time.AfterFunc(200*time.Millisecond, func() { stop.Store(true) })
		require.NoError(t, h.Remove(t.Context(), dir))
		<-done
		require.NoError(t, h.Remove(t.Context(), dir))
		require.NoDirExists(t, dir)
	})

	t.Run("ADirectoryThatTurnsIntoALinkAndBack", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		outside := victim(t)
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			for !stop.Load() {
				// Each of these may come when the removal has taken its object.
				_ = os.MkdirAll(filepath.Join(a, "precious"), 0o700)
				_ = os.Symlink(outside, b)
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}()
		for range 300 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			_ = h.Remove(ctx, dir) // it may lose the race, and must not lose the victim
			cancel()
			require.NoError(t, os.MkdirAll(dir, 0o700))
		}
		stop.Store(true)
		<-done
		require.FileExists(t, filepath.Join(outside, "precious"))
		require.NoError(t, h.Remove(t.Context(), dir))
	})

	t.Run("EndsWithItsContextHoweverMuchIsWritten", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					_ = os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600) // without a stop
				}
			}
		}()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
		defer cancel()
		emptied := make(chan error, 1)
		go func() { emptied <- h.Empty(ctx, dir) }()
		var err error
		require.Eventually(t, func() bool {
			select {
			case err = <-emptied:
				return true
			default:
				return false
			}
		}, 20*time.Second, 10*time.Millisecond, "it goes on past the end of its context")
		close(stop)
		<-done
		if err != nil { // nil where it was ahead of the writer for a moment
			require.ErrorContains(t, err, "enough")
		}
	})

	t.Run("EndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		h, dir := tree(t)
		write(t, filepath.Join(dir, "f"), "")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		require.ErrorContains(t, h.Remove(ctx, dir), "enough")
	})
}

// TestRemoveWithoutRoot removes, as a user who is not root, what that user's
// steps have closed to themselves, and says what it has no right to.
func TestRemoveWithoutRoot(t *testing.T) {
	t.Parallel()
	need.Root(t) // to become somebody else
	const nobody = 65534
	base, err := os.MkdirTemp("", "workspace-") //nolint:usetesting // nobody may not enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(base)) })
	require.NoError(t, os.Chown(base, nobody, nobody))

	own := func(path string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.Lchown(path, nobody, nobody))
		require.NoError(t, os.Chmod(path, mode))
	}
	tree := filepath.Join(base, stagesDir, "tree")
	for _, mode := range []os.FileMode{0o000, 0o100, 0o200, 0o400, 0o500} {
		dir := filepath.Join(tree, mode.String())
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
		write(t, filepath.Join(dir, "file"), "")
		write(t, filepath.Join(dir, "sub", "file"), "")
		own(filepath.Join(dir, "file"), 0o000)
		own(filepath.Join(dir, "sub", "file"), 0o400)
		own(filepath.Join(dir, "sub"), mode)
		own(dir, mode)
	}
	own(tree, 0o500)
	own(filepath.Join(base, stagesDir), 0o700)

	out, err := child(t, "remove", nobody, base, tree)
	require.NoError(t, err, out)
	require.NoDirExists(t, tree)

	foreign := filepath.Join(base, stagesDir, "foreign")
	require.NoError(t, os.MkdirAll(foreign, 0o700))
	write(t, filepath.Join(foreign, "roots"), "")
	out, err = child(t, "remove", nobody, base, foreign)
	require.Error(t, err)
	require.Contains(t, out, "not permitted")
	require.Contains(t, out, "foreign")
}

// protect marks a file as chattr does.
func protect(t *testing.T, path string, flag int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	require.NoError(t, err)
	permitted(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|flag))
	t.Cleanup(func() {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0) // the test may have removed it
		require.NoError(t, f.Close())
	})
}

// deepen makes a chain of directories, each in the one before.
func deepen(t *testing.T, dir string, depth int, name string) {
	t.Helper()
	fd, err := unix.Open(dir, dirFlags, 0)
	require.NoError(t, err)
	for range depth {
		require.NoError(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, dirFlags, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		fd = next
	}
	require.NoError(t, unix.Close(fd))
}
