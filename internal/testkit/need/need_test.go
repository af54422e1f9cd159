package need

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder stands in for a test and notes how it would have ended.
type recorder struct {
	testing.TB
	name, skipped, failed string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ends runs what a test would on a recorder and returns how it ended.
func ends(name string, test func(testing.TB)) *recorder {
	r := &recorder{name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r
}

func lacksProgram(tb testing.TB) {
	tb.Helper()
	Program(tb, "belay-no-such-program", "install it")
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".ci"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "internal", "x"), 0o755))
	list := filepath.Join(dir, ".ci", "skips")
	require.NoError(t, os.WriteFile(list, []byte("# why\n\nTestListed/deep  no such program here\n"), 0o644))
	t.Chdir(filepath.Join(dir, "internal", "x"))

	t.Run("AtHomeItSkipsAndSaysWhatToDo", func(t *testing.T) {
		t.Setenv("CI", "")
		r := ends("TestOther", lacksProgram)
		require.Empty(t, r.failed)
		require.Equal(t, "needs the program belay-no-such-program: install it", r.skipped)
	})
	t.Run("InCIItFails", func(t *testing.T) {
		t.Setenv("CI", "true")
		r := ends("TestOther", lacksProgram)
		require.Empty(t, r.skipped)
		require.Contains(t, r.failed, ".ci/skips does not list TestOther: install it")
	})
	t.Run("InCIItSkipsIfListed", func(t *testing.T) {
		t.Setenv("CI", "true")
		r := ends("TestListed/deep", lacksProgram)
		require.Empty(t, r.failed)
		require.Contains(t, r.skipped, "no such program here")
	})
	t.Run("InCIABrokenListFails", func(t *testing.T) {
		t.Setenv("CI", "true")
		require.NoError(t, os.WriteFile(list, []byte("TestListed/deep\n"), 0o644))
		r := ends("TestListed/deep", lacksProgram)
		require.Contains(t, r.failed, "skips:1: TestListed/deep has no reason")
	})
}

func TestPresent(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	require.NoError(t, err)
	r := ends("TestPresent", func(tb testing.TB) {
		tb.Helper()
		Program(tb, exe, "")
	})
	require.Empty(t, r.skipped+r.failed)
}

func TestSkips(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, text string) (map[string]string, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "skips")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return Skips(file)
	}
	skips, err := read(t, "TestA because  of a\n# comment\nTestB\tx y")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"TestA": "because of a", "TestB": "x y"}, skips)
	_, err = read(t, "TestA x\nTestA y\n")
	require.ErrorContains(t, err, ":2: TestA is listed twice")
}

func TestCgroupMount(t *testing.T) {
	t.Parallel()
	find := func(t *testing.T, text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "mountinfo")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return cgroupMount(file)
	}
	const v1 = "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	require.Empty(t, find(t, v1))
	require.Equal(t, "/sys/fs/cgroup/unified",
		find(t, v1+"32 24 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"))
	require.Empty(t, cgroupMount(filepath.Join(t.TempDir(), "none")))
}
