package command_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/command"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func call(script string) command.Call {
	return command.Call{Argv: []string{"/bin/sh", "-c", script}, Most: 100, Within: time.Minute}
}

func TestOutput(t *testing.T) {
	t.Parallel()

	t.Run("IsWhatItPrints", func(t *testing.T) {
		t.Parallel()
		c := call(`read line; echo "$line $GREETING $HOME"; echo secret >&2`)
		c.Input, c.Env = "said\n", []string{"GREETING=hi", "HOME=/h"}
		out, err := c.Output(t.Context())
		require.NoError(t, err)
		require.Equal(t, "said hi /h\n", string(out))
	})

	t.Run("ComesWithTheExitCode", func(t *testing.T) {
		t.Parallel()
		out, err := call("echo no; exit 3").Output(t.Context())
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 3, exit.ExitCode())
		require.Equal(t, "no\n", string(out))
	})

	t.Run("HasABound", func(t *testing.T) {
		t.Parallel()
		out, err := call("while :; do echo secret; done").Output(t.Context())
		require.EqualError(t, err, "it printed more than 100 bytes")
		require.Empty(t, out)
	})

	t.Run("IsNotWaitedForTooLong", func(t *testing.T) {
		t.Parallel()
		c := call("sleep 1000")
		c.Within = 100 * time.Millisecond
		_, err := c.Output(t.Context())
		require.EqualError(t, err, "no answer within 100ms")
	})

	t.Run("IsNotWaitedForWithWhatTheCommandStarted", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "pid")
		pid := func() int {
			text, err := os.ReadFile(file)
			n, none := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil || none != nil {
				return 0
			}
			return n
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("told to")
		var g errgroup.Group
		g.Go(func() error {
			_, err := call("sleep 1000 & echo $! > " + file + "; wait").Output(ctx)
			return err
		})
		require.Eventually(t, func() bool { return pid() != 0 }, time.Minute, 5*time.Millisecond)
		cancel(why)
		require.ErrorIs(t, g.Wait(), why)
		require.Eventually(t, func() bool { return gone(pid()) }, time.Minute, 5*time.Millisecond, "what it started goes on")
	})
}

// gone reports whether a process has ended, or is a zombie that nobody reaps.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
