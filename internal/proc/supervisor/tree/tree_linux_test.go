package tree

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

const patience = 30 * time.Second

// sleeper starts a process that ends when the test does.
func sleeper(t *testing.T, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = attr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func TestStatOfThisProcess(t *testing.T) {
	t.Parallel()
	s, err := ReadStat(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), s.PID)
	require.Equal(t, os.Getppid(), s.PPID)
	require.Equal(t, syscall.Getpgrp(), s.PGID)
	require.NotEmpty(t, s.Comm)
	require.NotZero(t, s.Start)
	require.False(t, s.Dead())
}

func TestNamesMayHoldAnything(t *testing.T) {
	t.Parallel()
	const rest = " S 1 7 8 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	for _, name := range []string{"sh", "a b", "a) R 9 (b", "(((", ")))", ""} {
		s, err := parseStat([]byte("42 (" + name + ")" + rest))
		require.NoError(t, err, name)
		require.Equal(t, Stat{PID: 42, PPID: 1, PGID: 7, SID: 8, Comm: name, State: 'S', Start: 4711}, s)
	}
	for _, bad := range []string{"", "42", "42 (sh)", "x (sh)" + rest, "42 (sh) S x 7 8 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711"} {
		_, err := parseStat([]byte(bad))
		require.ErrorIs(t, err, ErrStat, bad)
	}
}

func TestChildrenAreFoundInBothWays(t *testing.T) {
	t.Parallel()
	child := sleeper(t, nil).Process.Pid
	require.Contains(t, Children(os.Getpid()), child)
	require.Contains(t, childrenByScan(os.Getpid()), child)
	require.Contains(t, Descendants(os.Getppid()), child)
	require.Empty(t, Children(child))
	require.Empty(t, Children(1<<30), "a process that is not there has none")
}

func TestSignalsReachOnlyWhoIsMeant(t *testing.T) {
	t.Parallel()
	cmd := sleeper(t, nil)
	pid := cmd.Process.Pid
	require.ErrorIs(t, SignalIf(pid, syscall.SIGKILL, func(Stat) bool { return false }), syscall.ESRCH)
	handle, err := Open(pid)
	require.NoError(t, err)
	defer handle.Close()
	require.False(t, handle.Wait(0))
	require.NoError(t, SignalIf(pid, syscall.SIGKILL, func(s Stat) bool { return s.PID == pid }))
	require.True(t, handle.Wait(patience))
	s, err := ReadStat(pid)
	require.NoError(t, err)
	require.True(t, s.Dead(), "it is not reaped")
	require.ErrorIs(t, SignalIf(pid, syscall.SIGKILL, func(Stat) bool { return true }), syscall.ESRCH)
	for _, never := range []int{-1, 0, 1} {
		require.ErrorIs(t, SignalIf(never, syscall.SIGKILL, func(Stat) bool { return true }), syscall.ESRCH)
	}
}

func TestCgroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(need.Cgroup(t), "belay-test-"+filepath.Base(t.TempDir())+time.Now().Format("150405.000000"))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "below"), 0o750))
	c := Cgroup(dir)
	t.Cleanup(func() { require.NoError(t, c.Remove()) })
	require.True(t, c.WaitEmpty(0))

	f, err := os.Open(filepath.Join(dir, "below"))
	require.NoError(t, err)
	pid := sleeper(t, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}).Process.Pid
	require.NoError(t, f.Close())
	require.Equal(t, []int{pid}, c.Processes())
	require.True(t, c.Contains(pid))
	require.False(t, c.Contains(os.Getpid()))
	require.False(t, c.WaitEmpty(time.Millisecond))
	require.ErrorIs(t, c.Remove(), syscall.EBUSY)

	require.NoError(t, c.Kill())
	require.True(t, c.WaitEmpty(patience))
	require.Empty(t, c.Processes())
	user, system := c.CPU()
	require.Positive(t, user+system)
	require.NoError(t, c.Remove())
	require.NoDirExists(t, dir)
	require.NoError(t, c.Remove(), "removing twice is fine")
	require.True(t, c.WaitEmpty(0), "what is not there is empty")
	require.False(t, slices.Contains(c.Processes(), pid))
}
