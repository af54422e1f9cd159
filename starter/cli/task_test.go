package cli_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/starter/cli"
	"belay.run/starter/testkit/frontend"
)

// begun is the activity that a command started.
func begun(t *testing.T, b *bundle) *frontend.Activity {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.server.Tasks()) == 1 }, patience, tick)
	return b.server.Tasks()[0]
}

// came is what a task came to.
type came struct {
	ActivityID string `json:"activity_id"`
	RunID      string `json:"run_id"`
	task.Result
}

// lost is the failure of a task as its worker reports it.
func lost(trigger run.Trigger, message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(trigger), nil, task.Result{
		ID: "t", Type: "http", Status: task.Failed, Error: &task.Failure{Trigger: trigger, Message: message},
	})
}

func TestTaskRunEndsAsTheTaskDoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result any
		err    error
		code   int
		status task.Status
		says   string
	}{
		"succeeded": {
			result: task.Result{ID: "t", Type: "http", Status: task.Succeeded, Took: time.Second, Output: task.Output{"bytes": 1048576}},
			code:   cli.ExitOK, status: task.Succeeded, says: "succeeded in 1.0s\n  bytes: 1048576\n",
		},
		"duplicate": {result: task.Result{ID: "t", Type: "http", Status: task.Duplicate}, code: cli.ExitOK, status: task.Duplicate, says: "duplicate: its key was done"},
		"failed":    {err: lost(run.TriggerExitCode, "status 410"), code: cli.ExitFailed, status: task.Failed, says: "failed: "},
		"too slow":  {err: lost(run.TriggerStepTimeout, "took longer"), code: cli.ExitTimedOut, status: task.Failed, says: "took longer"},
		"no result": {err: temporal.NewNonRetryableApplicationError("no", "invalid", nil), code: cli.ExitFailed, status: task.Failed, says: "no"},
		"cancelled": {
			err:  temporal.NewCanceledError(task.Result{Status: task.Failed, Error: &task.Failure{Trigger: run.TriggerUser, Message: "stopped"}}),
			code: cli.ExitCancelled, status: task.Failed, says: "cancelled: stopped\n",
		},
		"never began": {err: temporal.NewCanceledError(), code: cli.ExitCancelled, status: task.Skipped, says: "cancelled before it began"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, asJSON := range []bool{false, true} {
				b := setup(t)
				args := []string{"task", "run", "--type", "http", "--with", "url=https://example.com/"}
				if asJSON {
					args = append(args, "-o", "json")
				}
				cmd := b.start(t, args...)
				a := begun(t, b)
				b.server.EndTask(a, tc.result, tc.err)
				require.Equal(t, tc.code, cmd.ends(t), cmd.err.String())
				people := cmd.out.String()
				if asJSON {
					people = cmd.err.String()
					doc := oneDocument[came](t, cmd.out.String())
					require.Equal(t, tc.status, doc.Status)
					require.Equal(t, a.ID, doc.ActivityID)
					require.Equal(t, a.RunID, doc.RunID)
				}
				require.True(t, strings.HasPrefix(people, "task "+a.ID+": http\n"), people)
				require.Contains(t, people, tc.says)
			}
		})
	}
}

func TestTaskRunThatTemporalGivesUp(t *testing.T) {
	t.Parallel()
	for kind, want := range map[enumspb.TimeoutType]struct {
		code    int
		trigger run.Trigger
	}{
		enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START: {cli.ExitUnreachable, run.TriggerDependencyUnavailable},
		enumspb.TIMEOUT_TYPE_HEARTBEAT:         {cli.ExitFailed, run.TriggerWorkerLost},
		enumspb.TIMEOUT_TYPE_START_TO_CLOSE:    {cli.ExitTimedOut, run.TriggerStepTimeout},
	} {
		b := setup(t)
		cmd := b.start(t, "task", "run", "--type", "noop", "-o", "json")
		b.server.TaskTimesOut(begun(t, b), kind)
		require.Equal(t, want.code, cmd.ends(t), kind)
		require.Equal(t, want.trigger, oneDocument[came](t, cmd.out.String()).Error.Trigger, kind)
	}
}

func TestTaskRunSendsWhatWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.start(t, "task", "run", "--type", "http", "--with", "url=https://example.com/a=b", "--with", "status=200",
		"--with", "status=3xx", "--with", `headers={"X-A":"b,c"}`, "--with", "max_bytes=4096", "--key", "k", "--timeout", "3s", "--attempts", "4",
		"--wait", "5s", "--tenant", "acme", "--project", "web", "--request-id", "click-7")
	a := begun(t, b)
	b.server.EndTask(a, task.Result{Status: task.Succeeded}, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t), cmd.err)

	asked := b.server.Asked().Tasks[0]
	require.Equal(t, "acme/web/task/click-7", asked.GetActivityId())
	require.Equal(t, "belay-light", asked.GetTaskQueue().GetName())
	require.Equal(t, "RunTask", asked.GetActivityType().GetName())
	require.EqualValues(t, 4, asked.GetRetryPolicy().GetMaximumAttempts())
	require.Equal(t, 5*time.Second, asked.GetScheduleToStartTimeout().AsDuration())
	require.Positive(t, asked.GetHeartbeatTimeout().AsDuration())
	require.JSONEq(t, `"acme"`, string(asked.GetSearchAttributes().GetIndexedFields()["BelayTenant"].GetData()))
	var sent task.Task
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(asked.GetInput(), &sent))
	require.JSONEq(t, `{"url":"https://example.com/a=b","status":["200","3xx"],"headers":{"X-A":"b,c"},"max_bytes":"4096"}`, string(sent.With))
	require.Contains(t, sent.Origin.Sender, "@")
	sent.With, sent.Origin.Sender = nil, ""
	require.Equal(t, task.Task{
		ID: "click-7", Type: "http", Key: "k", Timeout: 3 * time.Second,
		Origin: task.Origin{Tenant: "acme", Project: "web", Run: "acme/web/task/click-7", Node: "click-7"},
	}, sent)

	// The same request again is the same task.
	again := b.exec(t, "task", "run", "--type", "http", "--with", "url=https://example.com/", "--tenant", "acme", "--project", "web", "--request-id", "click-7")
	require.Equal(t, cli.ExitOK, again.code, again.err)
	require.Contains(t, again.out, "was started before")
	require.Len(t, b.server.Tasks(), 1)
}

func TestTaskRunOfAFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.In = strings.NewReader(`{"id":"x","type":"noop","with":{"sleep":"1ms"},"timeout":"9s"}` + "\n")
	cmd := b.start(t, "task", "run", "-", "--timeout", "2s")
	b.server.EndTask(begun(t, b), task.Result{Status: task.Succeeded}, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t), cmd.err)
	var sent task.Task
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(b.server.Asked().Tasks[0].GetInput(), &sent))
	require.Equal(t, "x", sent.ID)
	require.Equal(t, 2*time.Second, sent.Timeout, "the flag wins over the file")
}

func TestTaskRunIsCancelledByCtrlCAndThenLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.start(t, "task", "run", "--type", "noop", "--request-id", "one")
	a := begun(t, b)
	cmd.out.says(t, "task "+a.ID)
	b.signals <- syscall.SIGINT
	require.Eventually(t, func() bool { return len(b.server.Asked().CancelledTasks) == 1 }, patience, tick)
	require.Contains(t, b.server.Asked().CancelledTasks[0].GetReason(), "Ctrl-C")
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	cmd.err.says(t, "it was asked to cancel, and ends by itself")

	// Who found the task only leaves it.
	second := b.start(t, "task", "run", "--type", "noop", "--request-id", "one")
	second.out.says(t, "was started before")
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, second.ends(t))
	second.err.says(t, "it goes on")
	require.Len(t, b.server.Asked().CancelledTasks, 1)
}

func TestTaskRunSaysThatNoWorkerTakesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cmd := b.start(t, "task", "run", "--type", "noop")
	a := begun(t, b)
	cmd.out.says(t, "no worker has taken it yet; is one running? It waits until ")
	b.server.TaskTimesOut(a, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START)
	require.Equal(t, cli.ExitUnreachable, cmd.ends(t))
	cmd.out.says(t, "skipped: ")
}

func TestTaskRunRefusesWithoutAServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.Connect = func(context.Context) (*cli.Connection, error) { return nil, errors.New("a server was asked for") }
	two := file(t, "two.json", `{"type":"noop"}`+"\n"+`{"type":"noop"}`)
	for args, want := range map[string]string{
		"":                                   "name a FILE with the task, or its --type",
		"--type nop":                         `type "nop": not known; did you mean noop?`,
		"--type http":                        "url: it is required",
		"--type http --with url":             "--with url: want name=value",
		"--type http --with a=1 --with a=2":  "--with a: it is given twice",
		"--type http --with url=ftp://x":     "url: ",
		"--type noop --timeout 11m":          "timeout: expected a duration of at most 10m",
		"--type noop --key=":                 "--key is empty",
		"--type noop --attempts 0":           "--attempts 0: want 1 to 100",
		"--type noop --wait 1ms":             "--wait 1ms: want 1s to 24h0m0s",
		"--type noop --tenant a/b":           `--tenant "a/b"`,
		"--type noop --request-id=":          "--request-id must have 1 to 200 bytes",
		"--type noop " + two:                 "for a task without a FILE",
		two:                                  "found more after it",
		"/no/such/file":                      "no such file",
		file(t, "bad.json", `{"type":}`):     "is no JSON",
		file(t, "u.json", `{"typ":"noop"}`):  `unknown field "typ"`,
		file(t, "e.json", "") + " --key abc": "found nothing",
		"x y":                                "accepts at most 1 arg(s)",
	} {
		r := b.exec(t, append([]string{"task", "run"}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, want, args)
	}
	require.Equal(t, cli.ExitUsage, b.exec(t, "task", "rnu").code)
	require.Empty(t, b.server.Tasks())
}
