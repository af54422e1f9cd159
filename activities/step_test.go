package activities_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/goleak"

	"belay.run/activities"
	"belay.run/internal/container"
	"belay.run/internal/logs"
	"belay.run/internal/proc"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/spec"
	"belay.run/internal/store"
	"belay.run/internal/workspace"
)

func TestMain(m *testing.M) {
	if code, was := container.RunAsClient(os.Args, os.Stdout, os.Stderr); was {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}

// host is a real host in a folder of the test: real processes, real logs.
type host struct {
	env       *testsuite.TestActivityEnvironment
	steps     *activities.Steps
	logs      *logs.Logs
	owner     activities.Owner
	dirs      workspace.Dirs
	secrets   secrets
	workspace *workspace.Host

	resources *activities.Resources
}

type secrets map[string]string

func (s secrets) Get(_ context.Context, name string) (secret.Value, error) {
	if v, ok := s[name]; ok {
		return secret.NewValue(name, v), nil
	}
	return secret.Value{}, secret.ErrNotFound
}

func (s secrets) Where(string) string { return "the test" }

// setup starts a host; beats answers its heartbeats.
func setup(t *testing.T, beats error) *host {
	t.Helper()
	dir := t.TempDir()
	w, err := workspace.Open(filepath.Join(dir, "state"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	p, err := proc.New(proc.Options{StateDir: filepath.Join(dir, "proc")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	st, err := store.Open(t.Context(), "file://"+filepath.Join(dir, "store"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	l := logs.New(st, nil)
	t.Cleanup(l.Close)

	client := &mocks.Client{}
	client.On("RecordActivityHeartbeat", mock.Anything, mock.Anything, mock.Anything).Return(beats)
	h := &host{
		logs: l, owner: activities.Owner{RunKey: "k1", Node: "build", WorkflowID: "w", RunID: "r"},
		secrets: secrets{"TOKEN": "s3cr3t-value"},
	}
	h.resources = newResources(t, w, p, h.secrets)
	h.steps = activities.NewSteps(activities.StepsConfig{
		Resources: h.resources,
		Client:    client, Host: w, Proc: p, Logs: l, Store: st, Secrets: h.secrets, MaxProcesses: 2,
		Environment: []string{"PATH=" + os.Getenv("PATH")},
	})
	var suite testsuite.WorkflowTestSuite
	h.env = suite.NewTestActivityEnvironment()
	h.env.SetTestTimeout(30 * time.Second)
	h.env.RegisterActivity(h.steps)
	h.env.RegisterActivity(h.resources)
	h.workspace = w
	h.bind(t, nil)
	h.dirs = w.Dirs(h.owner.RunKey, h.owner.Node)
	return h
}

// bind takes the stage onto the host.
func (h *host) bind(t *testing.T, m activities.Meter) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(activities.NewBinder(h.workspace, m))
	_, err := env.ExecuteActivity((*activities.Binder)(nil).Bind, h.owner)
	require.NoError(t, err)
}

// input is a step of one script.
func (h *host) input(script string, edit ...func(*activities.StepInput)) activities.StepInput {
	in := activities.StepInput{
		Owner: h.owner, Node: "build/s", Step: spec.Step{
			Name: "s", Run: []spec.Command{{Script: script}}, Timeout: time.Minute, GracePeriod: time.Second,
			Retry: spec.Retry{MaxAttempts: 1},
		},
	}
	for _, f := range edit {
		f(&in)
	}
	return in
}

// run runs a step to its end: its result wherever it is, and its error.
func (h *host) run(t *testing.T, in activities.StepInput) (activities.StepResult, error) {
	t.Helper()
	var res activities.StepResult
	got, err := h.env.ExecuteActivity(h.steps.RunStep, in)
	var app *temporal.ApplicationError
	switch { // the test environment drops the details of a cancel
	case err == nil:
		require.NoError(t, got.Get(&res))
	case errors.As(err, &app) && app.HasDetails():
		require.NoError(t, app.Details(&res))
	}
	return res, err
}

func (h *host) output(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, h.logs.Replay(t.Context(), "k1", logs.Filter{}, func(r logs.Record) error {
		b.Write(r.Data)
		return nil
	}))
	return b.String()
}

func requireTrigger(t *testing.T, want run.Trigger, err error, retryable bool) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(want), app.Type(), app.Message())
	require.Equal(t, retryable, !app.NonRetryable(), app.Message())
}

func TestRunStep(t *testing.T) {
	t.Parallel()

	t.Run("RunsTheScriptInTheWorkspaceWithItsEnvironment", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		res, err := h.run(t, h.input(`pwd; echo "$GREETING $BELAY_RUN_ID $BELAY_ATTEMPT"; env | cut -d= -f1 | sort | tr '\n' ' '; echo err >&2; test -w "$TMPDIR" -a -w "$HOME" -a -w "$BELAY_CACHE"`,
			func(in *activities.StepInput) {
				in.Env, in.Vars = map[string]string{"GREETING": "hi"}, map[string]string{"BELAY_RUN_ID": "id"}
			}))
		require.NoError(t, err)
		require.Equal(t, 0, *res.ExitCode)
		require.Equal(t, 1, res.Attempt)
		out := h.output(t)
		require.Contains(t, out, h.dirs.Workspace+"\n")
		require.Contains(t, out, "hi id 1\n")
		require.Contains(t, out, "BELAY_ATTEMPT BELAY_CACHE BELAY_HOST BELAY_IDEMPOTENCY_KEY BELAY_NODE BELAY_OUTPUT BELAY_RUN_ID BELAY_WORKSPACE "+
			"CI GREETING HOME PATH PWD TMPDIR ")
		require.Contains(t, out, "err\n")
	})

	t.Run("StopsAtTheFirstCommandThatFails", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		res, err := h.run(t, h.input("echo one\n(exit 7)\necho two\n"))
		requireTrigger(t, run.TriggerExitCode, err, true)
		require.Equal(t, 7, *res.ExitCode)
		require.Equal(t, "build/s", res.Cause.Source)
		require.NotContains(t, h.output(t), "two")
	})

	t.Run("RetriesOnlyOnTheCodesThatAreNamed", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		codes := func(in *activities.StepInput) { in.Step.Retry.ExitCodes = []int{75} }
		_, err := h.run(t, h.input("exit 75", codes))
		requireTrigger(t, run.TriggerExitCode, err, true)
		_, err = h.run(t, h.input("exit 1", codes))
		requireTrigger(t, run.TriggerExitCode, err, false)
	})

	t.Run("SaysWhatIsWrongWithACommandThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		res, err := h.run(t, h.input("no-such-command-here"))
		requireTrigger(t, run.TriggerExitCode, err, true)
		require.Contains(t, res.Cause.Message, "not found")
	})

	t.Run("RefusesAShellOrADirectoryThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(":", func(in *activities.StepInput) { in.Step.Shell = "no-such-shell -x" }))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, "no-such-shell")
		_, err = h.run(t, h.input(":", func(in *activities.StepInput) { in.Step.WorkingDir = "gone" }))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, "gone")
	})

	t.Run("EndsAtItsTimeoutAndIsNotRetried", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input("echo begun; sleep 60", func(in *activities.StepInput) { in.Step.Timeout = 200 * time.Millisecond }))
		requireTrigger(t, run.TriggerStepTimeout, err, false)
		require.Contains(t, h.output(t), "step_timeout")
	})

	t.Run("EndsACommandAtItsOwnTimeout", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input("", func(in *activities.StepInput) {
			in.Step.Run = []spec.Command{{Script: "echo first"}, {Script: "sleep 60", Timeout: 200 * time.Millisecond}, {Script: "echo third"}}
		}))
		requireTrigger(t, run.TriggerCommandTimeout, err, false)
		require.Contains(t, h.output(t), "first")
		require.NotContains(t, h.output(t), "third")
	})

	t.Run("ConfirmsACancelThatAHeartbeatBrought", func(t *testing.T) {
		t.Parallel()
		h := setup(t, temporal.NewCanceledError())
		_, err := h.run(t, h.input(`trap 'echo tidied; exit 5' TERM; echo ready; sleep 60 & wait`))
		require.True(t, temporal.IsCanceledError(err), "%v", err)
		require.Contains(t, h.output(t), "tidied")
	})

	t.Run("EndsWhenTheWorkflowIsClosed", func(t *testing.T) {
		t.Parallel()
		h := setup(t, serviceerror.NewNotFound("workflow execution already completed"))
		_, err := h.run(t, h.input("sleep 60"))
		require.Error(t, err)
	})

	t.Run("IsEndedAtOnceByEnd", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		ended := make(chan error, 1)
		go func() {
			for activities.Running(h.steps) == 0 {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
			ended <- h.end()
		}()
		_, err := h.run(t, h.input("sleep 60"))
		require.True(t, temporal.IsCanceledError(err), "%v", err)
		require.NoError(t, <-ended)
	})

	t.Run("DoesNotBeginWhereItWasEndedBefore", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		require.NoError(t, h.end())
		_, err := h.run(t, h.input("echo never"))
		require.True(t, temporal.IsCanceledError(err), "%v", err)
		require.Empty(t, h.output(t))
	})
}

// end ends the step as a cancelled stage does.
func (h *host) end() error {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(h.steps)
	_, err := env.ExecuteActivity(h.steps.End, activities.EndInput{
		Owner: h.owner, Nodes: []string{"build/s"}, Cause: run.Cause{Trigger: run.TriggerUser},
	})
	return err
}

func TestOutputsOfAStep(t *testing.T) {
	t.Parallel()
	declares := func(names ...string) func(*activities.StepInput) {
		return func(in *activities.StepInput) { in.Step.Outputs = names }
	}

	t.Run("AreHandedOver", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		res, err := h.run(t, h.input(`echo "digest=sha256:1" >> "$BELAY_OUTPUT"`, declares("digest")))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"digest": "sha256:1"}, res.Outputs)
	})

	t.Run("MustBeDeclaredAndWritten", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(`echo "digets=1" >> "$BELAY_OUTPUT"`, declares("digest")))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, "digets")
		_, err = h.run(t, h.input(":", declares("digest")))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, "did not write it")
	})

	t.Run("MayHoldNoSecret", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(`printf 'd=%s\n' "$TOKEN" >> "$BELAY_OUTPUT"`, declares("d"),
			func(in *activities.StepInput) { in.Step.Secrets = []string{"TOKEN"} }))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, `"d" holds a secret`)
		require.NotContains(t, err.Error(), "s3cr3t")
	})
}

func TestSecretsOfAStep(t *testing.T) {
	t.Parallel()
	lists := func(in *activities.StepInput) { in.Step.Secrets = []string{"TOKEN"} }

	t.Run("ReachItAndAreMasked", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(`test -n "$TOKEN"; echo "raw $TOKEN"; printf '%s\n' "$TOKEN" | base64 >&2`, lists))
		require.NoError(t, err)
		out := h.output(t)
		require.Contains(t, out, "raw ***")
		require.NotContains(t, out, "s3cr3t")
		require.NotContains(t, out, "czNjcjN0LXZhbHVl")
	})

	t.Run("ReachOnlyStepsThatListThem", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(`test -z "$TOKEN"`))
		require.NoError(t, err)
	})

	t.Run("ThatAreMissingFailTheStep", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		delete(h.secrets, "TOKEN")
		_, err := h.run(t, h.input(":", lists))
		requireTrigger(t, run.TriggerInvalid, err, false)
	})
}

func TestReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	_, err := h.run(t, h.input(strings.Repeat("mkdir d; cd d; ", 50)+"chmod 0 .; ln -s / root"))
	_ = err // whether the link can be made depends on who runs the test
	for range 2 {
		_, err = h.env.ExecuteActivity(h.steps.Release, h.owner)
		require.NoError(t, err)
	}
	require.NoDirExists(t, h.dirs.Root)
}

// full is a store that takes nothing.
type full struct{ store.Store }

func (full) Append(context.Context, string, int64, []byte) error { return store.ErrFull }

// TestStepRunsWithoutALog: what the store refuses costs a step its log, not its
// turn, so that steps that clean up run on a full disk too.
func TestStepRunsWithoutALog(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	h.steps.Logs = logs.New(full{h.steps.Store}, nil)
	sign := filepath.Join(t.TempDir(), "sign")
	res, err := h.run(t, h.input("touch "+sign+"; echo words"))
	require.NoError(t, err)
	require.FileExists(t, sign)
	require.Equal(t, []string{
		"the log is not complete: the log of build/s could not be opened, 6 bytes of output lost: the store is full",
	}, res.Notes)
}
