package devcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/devcmd"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/testkit/need"
	"belay.run/starter/cli"
)

// programVariable makes the test binary one of the programs under test.
const programVariable = "BELAY_TEST_PROGRAM"

// patience only bounds what is broken.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(programVariable) {
	case "dev":
		os.Exit(devcmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	case "starter":
		os.Exit(cli.Main(context.Background(), os.Args[1:]...))
	}
	os.Exit(m.Run())
}

const hello = `
version: 1
name: hello
stages: [{name: s, steps: [{name: say, run: echo hello from a step}]}]
`

// TestUp lives a day with dev: it comes up on a directory, a starter that knows
// only what dev printed runs a pipeline, dev ends on SIGTERM, and when it is
// back the run and its log are still there.
func TestUp(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	data := filepath.Join(t.TempDir(), "data")
	args := []string{"--data", data, "--port", "0", "--ui-port", "0", "--redis-port", "0", "--http-port", "0"}

	dev := start(t, "dev", nil, args...)
	env := dev.waitUp(t)
	ran := start(t, "starter", env, "run", file(t, hello), "-o", "json")
	require.Zero(t, ran.wait(t), ran.all())
	var doc run.Document
	require.NoError(t, json.Unmarshal(ran.stdout(), &doc), ran.all())
	require.Equal(t, run.Succeeded, doc.Status)
	require.Contains(t, doc.URL, "http://127.0.0.1:")
	dev.end(t)
	requireDown(t, env)

	dev = start(t, "dev", nil, args...)
	env = dev.waitUp(t)
	status := start(t, "starter", env, "status", doc.ID)
	require.Zero(t, status.wait(t), status.all())
	require.Contains(t, string(status.stdout()), "succeeded")
	logs := start(t, "starter", env, "logs", doc.ID)
	require.Zero(t, logs.wait(t), logs.all())
	require.Contains(t, string(logs.stdout()), "hello from a step")
	dev.end(t)
}

// TestUpOnARedisThatRuns: the starter is told of that one too.
func TestUpOnARedisThatRuns(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dev := start(t, "dev", nil, "--redis-url", redis.URL, "--port", "0", "--headless", "--http-port", "0")
	require.Contains(t, dev.waitUp(t), "REDIS_URL="+redis.URL)
	dev.end(t)
}

// TestKilled kills dev with -9 in the middle of a run. What is started on the
// directory then goes on with it.
func TestKilled(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	data, sign := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "sign")
	args := []string{"--data", data, "--headless", "--port", "0", "--redis-port", "0", "--http-port", "0"}
	pipeline := file(t, `
version: 1
name: patient
stages:
  - name: s
    steps:
      - name: looks
        run: if test -e `+sign+`; then echo found; else echo not yet; exit 1; fi
        retry: {max_attempts: 100, initial_interval: 1s, backoff: 1}
      - {name: after, run: echo after}
`)
	dev := start(t, "dev", nil, args...)
	env := dev.waitUp(t)
	ran := start(t, "starter", env, "run", pipeline, "--detach", "-o", "json")
	require.Zero(t, ran.wait(t), ran.all())
	var doc run.Document
	require.NoError(t, json.Unmarshal(ran.stdout(), &doc), ran.all())
	require.Eventually(t, func() bool {
		logs := start(t, "starter", env, "logs", doc.ID)
		return logs.wait(t) == 0 && strings.Contains(logs.all(), "not yet")
	}, patience, 100*time.Millisecond, "the step has looked once")
	require.NoError(t, dev.cmd.Process.Kill())
	dev.wait(t)
	require.NoError(t, os.WriteFile(sign, nil, 0o600))

	dev = start(t, "dev", nil, args...)
	env = dev.waitUp(t)
	watch := start(t, "starter", env, "watch", doc.ID)
	require.Zero(t, watch.wait(t), watch.all())
	logs := start(t, "starter", env, "logs", doc.ID)
	require.Zero(t, logs.wait(t), logs.all())
	require.Contains(t, logs.all(), "not yet")
	require.Contains(t, logs.all(), "found")
	require.Contains(t, logs.all(), "after")
	dev.end(t)
}

// TestRun checks the exit codes of dev run, and that a document has standard
// output for itself.
func TestRun(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	fails := strings.Replace(hello, "echo hello from a step", "exit 3", 1)
	for name, tc := range map[string]struct {
		args []string
		code int
		want string // in what it prints
	}{
		"succeeds":     {[]string{"run", file(t, hello)}, cli.ExitOK, "hello from a step"},
		"fails":        {[]string{"--headless", "run", file(t, fails), "-o", "json"}, cli.ExitFailed, `"exit_code": 3`},
		"invalid file": {[]string{"run", file(t, hello+"\nnonsense: 1\n")}, cli.ExitUsage, "nonsense"},
		"no file":      {[]string{"run"}, cli.ExitUsage, "run FILE"},
		"bad flag":     {[]string{"--prot", "1"}, cli.ExitUsage, "unknown flag: --prot"},
		"bad address":  {[]string{"--ip", "localhost"}, cli.ExitUsage, "--ip"},
		"bad word":     {[]string{"rnu"}, cli.ExitUsage, "rnu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "dev", nil, tc.args...)
			require.Equal(t, tc.code, p.wait(t), p.all())
			require.Contains(t, p.all(), tc.want)
			if strings.Contains(name, "fails") {
				require.True(t, json.Valid(p.stdout()), "standard output is one document: %s", p.stdout())
			}
		})
	}
}

// TestRunInterrupted counts Ctrl-C: the first cancels, the second leaves out
// finally, the third ends everything, and in each case nothing is left.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	need.Linux(t)
	need.Program(t, "redis-server", "apt-get install redis-server")
	for times, pipeline := range []string{`
version: 1
name: cancelled
stages: [{name: s, steps: [{name: w, grace_period: 1s, run: "echo here; sleep MARK"}]}]
`, `
version: 1
name: now
stages: [{name: s, steps: [{name: w, grace_period: 1s, run: "echo here; sleep MARK"}]}]
finally: [{name: f, grace_period: 1s, run: "echo here; sleep MARK"}]
`, `
version: 1
name: stubborn
stages: [{name: s, steps: [{name: w, grace_period: 10m, run: "trap 'echo here' TERM; echo here; while :; do sleep MARK; done"}]}]
finally: [{name: f, run: "echo never"}]
`} {
		t.Run(fmt.Sprint(times+1), func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("%d.%d", 400+times, os.Getpid())
			p := start(t, "dev", nil, "run", file(t, strings.ReplaceAll(pipeline, "MARK", mark)))
			for n := range times + 1 {
				if n < 2 {
					p.waitFor(t, "] here", n+1)
				} else {
					p.waitFor(t, "leaving out finally", 1)
				}
				// Not to wait for anything: a signal that comes twice within 50 ms
				// counts once, and a person is slower.
				time.Sleep(200 * time.Millisecond)
				require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
			}
			require.Equal(t, cli.ExitCancelled, p.wait(t), p.all())
			require.Empty(t, processes(t, mark), "processes that should be gone")
		})
	}
}

// TestStoppedWhileBooting ends dev while it waits for a redis-server that does
// not answer, and which is a script besides. Nothing is left then.
func TestStoppedWhileBooting(t *testing.T) {
	t.Parallel()
	need.Linux(t)
	for name, tc := range map[string]struct {
		args []string
		code int
	}{
		"dev":     {[]string{"--headless", "--port", "0", "--redis-port", "0", "--http-port", "0"}, cli.ExitOK},
		"dev run": {[]string{"--headless", "run", file(t, hello)}, cli.ExitCancelled},
	} {
		for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(name+" "+sig.String(), func(t *testing.T) {
				t.Parallel()
				bin, temp := t.TempDir(), t.TempDir()
				began := filepath.Join(bin, "began")
				script := "#!/bin/sh\ntouch " + began + "\nsleep 1000\nexit 1\n"
				require.NoError(t, os.WriteFile(filepath.Join(bin, "redis-server"), []byte(script), 0o700))
				p := start(t, "dev", []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + temp}, tc.args...)
				require.Eventually(t, func() bool {
					_, err := os.Stat(began)
					return err == nil
				}, patience, 10*time.Millisecond, "it does not start Redis")
				require.NoError(t, p.cmd.Process.Signal(sig))
				require.Equal(t, tc.code, p.wait(t), p.all())
				require.NotContains(t, p.all(), "killed")
				left, err := os.ReadDir(temp)
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}

// program is one of the programs under test, running.
type program struct {
	cmd      *exec.Cmd
	out, err *lines
	exited   chan struct{}
}

func start(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(os.Args[0], args...), out: &lines{}, err: &lines{}, exited: make(chan struct{})}
	p.cmd.Env = append(append(clean(os.Environ()), programVariable+"="+name, "HOME="+t.TempDir()), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its code is read from its state
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // almost always it has ended
		<-p.exited
	})
	return p
}

// clean leaves out variables that would point a program at something else.
func clean(environ []string) []string {
	var out []string
	for _, e := range environ {
		if !strings.HasPrefix(e, "BELAY_") && !strings.HasPrefix(e, "TEMPORAL_") && !strings.HasPrefix(e, "REDIS_") &&
			!strings.HasPrefix(e, "XDG_") {
			out = append(out, e)
		}
	}
	return out
}

// waitUp waits until dev is up and returns the variables that it tells a
// starter to use.
func (p *program) waitUp(t *testing.T) []string {
	t.Helper()
	p.waitFor(t, "Ctrl-C ends.", 1)
	require.Contains(t, p.all(), "Belay is ready")
	command := regexp.MustCompile(`(?m)^  (.*)go run \./starter run`).FindStringSubmatch(p.all())
	require.NotNil(t, command, p.all())
	return strings.Fields(command[1])
}

// end ends dev in peace.
func (p *program) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.wait(t), p.all())
}

func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("it has not ended within %s; it said: %s", patience, p.all())
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor waits until the program has printed a text so many times.
func (p *program) waitFor(t *testing.T, text string, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(p.all(), text) >= times }, patience, 10*time.Millisecond,
		"it does not say %q %d times", text, times)
}

func (p *program) stdout() []byte { return []byte(p.out.String()) }
func (p *program) all() string    { return p.out.String() + p.err.String() }

// lines keeps what a program prints.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipeline.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// requireDown makes sure that nothing answers any more where dev said that
// something would.
func requireDown(t *testing.T, env []string) {
	t.Helper()
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(strings.Join(env, " "), -1)
	require.GreaterOrEqual(t, len(found), 3, "Temporal, its UI, Redis: %v", env)
	for _, addr := range found {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		require.Error(t, err, "something listens on %s", addr)
	}
}

// processes are those of this machine whose command line holds mark.
func processes(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && bytes.Contains(text, []byte(mark)) {
			found = append(found, f+": "+string(text))
		}
	}
	return found
}
