package secret

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a provider that runs a shell script, which gets the name as $1.
func script(t *testing.T, text string) program {
	t.Helper()
	file := filepath.Join(t.TempDir(), "provider")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o600))
	return program{command: []string{"/bin/sh", file}, timeout: 30 * time.Second}
}

func TestExecTakesWhatTheCommandPrints(t *testing.T) {
	t.Parallel()
	v, err := script(t, `printf 'value of %s\n\n' "$1"`).Get(t.Context(), "TOKEN")
	require.NoError(t, err)
	require.Equal(t, "value of TOKEN\n", v.Reveal())
	require.Equal(t, "TOKEN", v.Name())
}

func TestExecSaysThatANameIsUnknownByExitCode3(t *testing.T) {
	t.Parallel()
	_, err := script(t, `exit 3`).Get(t.Context(), "TOKEN")
	require.ErrorIs(t, err, ErrNotFound)
	_, err = script(t, `exit 1`).Get(t.Context(), "TOKEN")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
}

func TestExecNeverShowsWhatTheCommandWrote(t *testing.T) {
	t.Parallel()
	_, err := script(t, `echo hunter2; echo hunter2 >&2; exit 1`).Get(t.Context(), "TOKEN")
	require.ErrorContains(t, err, "secret TOKEN: the command /bin/sh")
	require.ErrorContains(t, err, "exit status 1")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestExecBoundsTheOutput(t *testing.T) {
	t.Parallel()
	_, err := script(t, `yes`).Get(t.Context(), "TOKEN")
	require.ErrorContains(t, err, "more than 65538 bytes")
	v, err := script(t, `head -c 65536 /dev/zero | tr '\0' x; echo`).Get(t.Context(), "TOKEN")
	require.NoError(t, err)
	require.Len(t, v.Reveal(), maxSize)
}

func TestExecDoesNotWaitForLong(t *testing.T) {
	t.Parallel()
	p := script(t, `sleep 300`)
	p.timeout = 100 * time.Millisecond
	_, err := p.Get(t.Context(), "TOKEN")
	require.ErrorContains(t, err, "no answer within 100ms")
}

func TestExecNamesACommandThatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := Exec("/no/such/command").Get(t.Context(), "TOKEN")
	require.ErrorContains(t, err, "/no/such/command")
	require.NotErrorIs(t, err, ErrNotFound)
}
