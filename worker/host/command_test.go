package host

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/workspace"
)

func TestMainWithoutRunning(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"Version", []string{"version"}, exitOK, "belay worker ", ""},
		{"VersionFlag", []string{"--version"}, exitOK, "belay worker ", ""},
		{"Help", []string{"--help"}, exitOK, "--drain-timeout (BELAY_DRAIN_TIMEOUT)", ""},
		{"UnknownFlag", []string{"--lables=x"}, exitUsage, "", "did you mean --labels?"},
		{"BadValue", []string{"--log-level=loud"}, exitUsage, "", `"loud"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			require.Equal(t, tc.code, Main(tc.args, &stdout, &stderr))
			require.Contains(t, stdout.String(), tc.stdout)
			require.Contains(t, stderr.String(), tc.stderr)
			if tc.code == exitOK {
				require.Empty(t, stderr.String())
			} else {
				require.Empty(t, stdout.String())
			}
		})
	}
}

// TestMainWithSettingsThatShowWhenTheyAreUsed ends with the code of a wrong
// setting: to be started again would not help.
func TestMainWithSettingsThatShowWhenTheyAreUsed(t *testing.T) {
	t.Setenv("TEMPORAL_CONFIG_FILE", filepath.Join(t.TempDir(), "none.toml"))
	t.Setenv("TEMPORAL_PROFILE", "nope")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitUsage, Main([]string{"--state-dir=" + t.TempDir(), "--http-address=off"}, &stdout, &stderr), stderr.String())
	require.Contains(t, stderr.String(), "nope")
}

// output keeps what a process writes, for the test and for its end.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// spawn starts a worker in a process of its own on a state directory to which a
// live stage is bound, and returns it once it is ready.
func spawn(t *testing.T, bound bool) (cmd *exec.Cmd, out *output) {
	t.Helper()
	f := serveTemporal(t, "")
	dir := t.TempDir()
	if bound {
		h, err := workspace.Open(dir)
		require.NoError(t, err)
		f.set("wf", stillOpen)
		_, err = h.Bind(t.Context(), workspace.Binding{RunKey: "run", Node: "build", WorkflowID: "wf"})
		require.NoError(t, err)
		require.NoError(t, h.Close())
	}
	out = new(output)
	cmd = exec.Command(os.Args[0], "--state-dir", dir, "--http-address", "off", "--drain-timeout", "1h")
	cmd.Env = append(os.Environ(), append(f.environ(), asWorker+"=1")...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		// Where the test has not ended it already.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, func() bool { return strings.Contains(out.String(), `"message":"ready"`) }, "it is ready")
	return cmd, out
}

func TestSignals(t *testing.T) {
	t.Parallel()

	t.Run("TheFirstDrains", func(t *testing.T) {
		t.Parallel()
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			cmd, out := spawn(t, false)
			require.NoError(t, cmd.Process.Signal(sig))
			require.NoError(t, cmd.Wait(), out.String())
			require.Contains(t, out.String(), `"message":"drained"`)
		}
	})

	t.Run("TheSecondEndsAtOnce", func(t *testing.T) {
		t.Parallel()
		cmd, out := spawn(t, true)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		eventually(t, func() bool { return strings.Contains(out.String(), "waiting for stages to end") }, "it drains")
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, exitFailed, exit.ExitCode(), out.String())
		require.Contains(t, out.String(), "second signal")
	})
}
