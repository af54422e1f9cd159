package tempdir_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/tempdir"
)

// holderVariable makes the test binary a process that has a directory, says
// which, and waits to be killed.
const holderVariable = "BELAY_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		os.Exit(holder())
	}
	os.Exit(m.Run())
}

func holder() int {
	d, err := tempdir.New("held-")
	if err != nil {
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, d.Path); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// TestSweep removes a directory once its process was killed, and nothing that
// somebody has or that is not ours.
func TestSweep(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	stranger, other := filepath.Join(temp, "belay-dev-stranger"), filepath.Join(temp, "other")
	require.NoError(t, os.MkdirAll(stranger, 0o700))
	require.NoError(t, os.MkdirAll(other, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "lock"), nil, 0o600))
	require.NoError(t, os.Symlink(other, filepath.Join(temp, "belay-dev-link")))

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	_, err = cmd.StdinPipe() // it waits for its end
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	held := strings.TrimSpace(line)
	require.NoError(t, os.WriteFile(filepath.Join(held, "state"), nil, 0o600))

	first, err := tempdir.New("")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(held, "state"), "its process lives")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	second, err := tempdir.New("home-")
	require.NoError(t, err)
	require.NoDirExists(t, held)
	for _, path := range []string{first.Path, second.Path, stranger, filepath.Join(other, "lock")} {
		_, err := os.Stat(path)
		require.NoError(t, err)
	}

	require.NoError(t, first.Remove())
	require.NoError(t, second.Remove())
	require.NoDirExists(t, first.Path)
	require.NoDirExists(t, second.Path)
}
