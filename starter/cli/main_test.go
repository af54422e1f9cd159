package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/telemetry"
	"belay.run/starter/cli"
)

// programVariable makes the test binary the program itself.
const programVariable = "BELAY_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:]...))
	}
	redis.SetLogger(telemetry.Redis(nil)) // as the program does
	goleak.VerifyTestMain(m, redistest.Redialing())
}

// program runs the program as it is, with what the environment says.
func program(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var out, errOut output
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), programVariable+"=1"), env...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); !exited { //nolint:errorlint // as Run returns it
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// TestProgramOverAStoreThatIsNotThere looks at logs where BELAY_STORE leads
// nowhere and nobody answers at REDIS_URL: it says which store has nothing,
// makes none, and the Redis client keeps its lines to itself.
func TestProgramOverAStoreThatIsNotThere(t *testing.T) {
	t.Parallel()
	b, code := setup(t), 0
	s := b.add(runName, run.Document{Stages: []run.Stage{{
		Name: "greet", Node: "greet", Status: run.Succeeded, Host: "h",
		Steps: []run.Step{{Name: "say", Node: "greet/say", Status: run.Succeeded, Attempts: 1, ExitCode: &code}},
	}}})
	b.end(s, run.Succeeded, nil)
	dir := filepath.Join(t.TempDir(), "nowhere", "store")
	env := []string{
		"TEMPORAL_ADDRESS=" + b.server.Address(), "BELAY_STORE=file://" + dir, "REDIS_URL=redis://127.0.0.1:1",
	}
	for _, more := range [][]string{nil, {"-f"}} {
		r := program(t, env, append([]string{"logs", runName}, more...)...)
		require.Equal(t, cli.ExitFailed, r.code, r.err)
		require.Empty(t, r.out)
		require.Contains(t, r.err, "the store "+dir+" has no logs of run "+runName)
		require.NotContains(t, r.err, "pool.go")
		require.NoDirExists(t, filepath.Dir(dir))
	}
	r := program(t, append(env, "BELAY_STORE=s3://nowhere"), "logs", runName)
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, `BELAY_STORE: store "s3://nowhere"`)
	r = program(t, append(env, "TEMPORAL_PROFILE=nope"), "status", runName)
	require.Equal(t, cli.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, "TEMPORAL_")
	r = program(t, env, "dedup", "check", "--key", "k", "--pipeline", "p")
	require.NotEqual(t, cli.ExitOK, r.code)
	require.NotContains(t, r.err, "pool.go")
}
