package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
	"belay.run/starter/cli"
	"belay.run/workflows"
)

func failed(cause *run.Cause, doc any) error {
	return temporal.NewNonRetryableApplicationError(cause.String(), string(cause.Trigger), nil, doc)
}

func TestRunEndsWithTheExitCodeOfTheRun(t *testing.T) {
	t.Parallel()
	for status, code := range map[run.Status]int{
		run.Succeeded: cli.ExitOK, run.Failed: cli.ExitFailed, run.Cancelled: cli.ExitCancelled,
		run.TimedOut: cli.ExitTimedOut, run.Skipped: cli.ExitOK,
	} {
		for _, asJSON := range []bool{false, true} {
			b := setup(t)
			made := b.onStart(run.Document{})
			args := []string{"run", file(t, "hello.yaml", hello), "-i", "who=me"}
			if asJSON {
				args = append(args, "-o", "json")
			}
			cmd := b.start(t, args...)
			s := <-made
			progress := cmd.out
			if asJSON {
				progress = cmd.err
			}
			progress.says(t, "run "+s.w.ID+" (http://ui/namespaces/default/workflows/")
			b.end(s, status, &run.Cause{Trigger: run.TriggerExitCode, Source: "greet/say", Message: "exited with 3"})
			require.Equal(t, code, cmd.ends(t), status)
			if asJSON {
				doc := oneDocument[run.Document](t, cmd.out.String())
				require.Equal(t, status, doc.Status)
				require.Equal(t, s.w.ID, doc.ID)
			}
			require.True(t, strings.HasPrefix(progress.String(), "run "+s.w.ID), "the id comes first")
		}
	}
}

func TestRunSendsWhatWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	inputs := file(t, "inputs.yaml", "who: 1.10\n")
	cmd := b.start(t, "run", file(t, "hello.yaml", hello), "--inputs-file", inputs, "--tenant", "acme", "--project", "web",
		"--request-id", "click-7", "--sender", "ci")
	s := <-made
	b.end(s, run.Succeeded, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t), cmd.err)

	start := b.server.Asked().Starts[0]
	require.Equal(t, "acme/web/hello/r/click-7", start.GetWorkflowId())
	require.Equal(t, "belay-workflows", start.GetTaskQueue().GetName())
	require.Equal(t, workflows.PipelineWorkflow, start.GetWorkflowType().GetName())
	require.Zero(t, start.GetWorkflowExecutionTimeout().AsDuration())
	require.Equal(t, 2*time.Second, start.GetWorkflowTaskTimeout().AsDuration())
	require.Contains(t, string(start.GetUserMetadata().GetSummary().GetData()), "hello (who=1.10)")
	for attr, want := range map[string]string{"BelayTenant": "acme", "BelayProject": "web", "BelayPipeline": "hello"} {
		require.JSONEq(t, `"`+want+`"`, string(start.GetSearchAttributes().GetIndexedFields()[attr].GetData()))
	}
	var in workflows.PipelineInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(start.GetInput(), &in))
	require.Equal(t, hello, in.File)
	require.Equal(t, map[string]string{"who": "1.10"}, in.Inputs)
	require.Equal(t, "ci", in.Sender)
	require.Equal(t, "click-7", in.RequestID)
	require.False(t, in.RequestedAt.IsZero())
}

func TestRunAttachesToTheRunOfItsRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	args := []string{"run", file(t, "hello.yaml", hello), "--request-id", "r1", "-o", "json"}
	first := b.start(t, args...)
	s := <-made
	first.err.says(t, "run "+s.w.ID)
	second := b.start(t, args...)
	second.err.says(t, "attached to run "+s.w.ID)
	b.end(s, run.Failed, &run.Cause{Trigger: run.TriggerExitCode})
	require.Equal(t, cli.ExitFailed, first.ends(t))
	require.Equal(t, cli.ExitFailed, second.ends(t))
	require.Empty(t, oneDocument[run.Document](t, first.out.String()).DuplicateOf)
	require.Equal(t, s.w.ID, oneDocument[run.Document](t, second.out.String()).DuplicateOf)

	third := b.exec(t, args...)
	require.Equal(t, cli.ExitFailed, third.code, "a request that is delivered again never runs again")
	require.Equal(t, s.w.RunID, oneDocument[run.Document](t, third.out).RunID)
	require.Empty(t, made)
}

func TestRunDetached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	r := b.exec(t, "run", file(t, "hello.yaml", hello), "--detach")
	s := <-made
	require.Equal(t, cli.ExitOK, r.code)
	require.Contains(t, r.out, "run "+s.w.ID)
	require.Contains(t, r.out, "belay watch "+s.w.ID+"@"+s.w.RunID)
	r = b.exec(t, "run", file(t, "hello.yaml", hello), "--detach", "-o", "json")
	s = <-made
	doc := oneDocument[run.Document](t, r.out)
	require.Equal(t, s.w.ID, doc.ID)
	require.Equal(t, run.Running, doc.Status)
}

func TestRunShowsEveryMistakeWithoutAServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.Connect = func(context.Context) (*cli.Connection, error) {
		return nil, errors.New("a server was asked for")
	}
	good := file(t, "hello.yaml", hello)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"NoFile":        {[]string{"run"}, "accepts 1 arg(s), received 0"},
		"MissingFile":   {[]string{"run", "/nowhere/x.yaml"}, "no such file"},
		"Directory":     {[]string{"run", t.TempDir()}, "is a directory"},
		"Broken":        {[]string{"run", file(t, "x.yaml", "name: x\nstagse: []\n")}, "stagse"},
		"BadInput":      {[]string{"run", good, "-i", "who"}, "want name=value"},
		"TwiceInput":    {[]string{"run", good, "-i", "who=1", "-i", "who=2"}, "given twice"},
		"UnknownInput":  {[]string{"run", good, "-i", "whom=1"}, "whom"},
		"InputsFile":    {[]string{"run", good, "--inputs-file", file(t, "i.json", `{"who": [1]}`)}, "want a text"},
		"InputsNoMap":   {[]string{"run", good, "--inputs-file", file(t, "i.json", `[1]`)}, "want a map"},
		"BadTenant":     {[]string{"run", good, "--tenant", "a/b"}, "--tenant"},
		"BadRequestID":  {[]string{"run", good, "--request-id", ""}, "--request-id"},
		"UnknownFlag":   {[]string{"run", good, "--no-such-flag", "x"}, "unknown flag: --no-such-flag"},
		"BadPolicy":     {[]string{"run", good, "--on-duplicate", "ignore"}, "attach, reject or replace"},
		"EmptyKey":      {[]string{"run", good, "--dedup-key", ""}, "the key is empty"},
		"BadKey":        {[]string{"run", good, "--dedup-key", "a\x01b"}, "control character"},
		"RerunNoKey":    {[]string{"run", good, "--rerun"}, "without a key"},
		"UnknownFormat": {[]string{"run", good, "-o", "yaml"}, "text or json"},
	} {
		r := b.exec(t, tc.args...)
		require.Equal(t, cli.ExitUsage, r.code, name)
		require.Contains(t, r.err, tc.want, name)
		require.Empty(t, r.out, name)
		if name == "UnknownFormat" {
			continue
		}
		r = b.exec(t, append(tc.args, "-o", "json")...)
		require.Equal(t, cli.ExitUsage, r.code, name)
		var body struct {
			Error struct {
				Code          int
				Message, Hint string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.out), &body), name)
		require.Equal(t, cli.ExitUsage, body.Error.Code, name)
		require.Contains(t, body.Error.Message, tc.want, name)
	}
}

func TestRunReadsStandardInput(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.In = strings.NewReader(hello)
	made := b.onStart(run.Document{})
	r := b.exec(t, "run", "-", "--detach")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, (<-made).w.ID, "default/default/hello/r/")
}

func TestRunShowsProgressInLines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Running}}})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	s := <-made
	cmd.out.says(t, "greet running")
	b.end(s, run.Succeeded, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t))
	require.Contains(t, cmd.out.String(), "hello succeeded after")
	require.NotContains(t, cmd.out.String(), "\x1b")
	require.Empty(t, cmd.err.String())
}

// cancels makes a run end when it is asked to.
func (b *bundle) cancels(s *state) {
	s.w.Cancelled = func(r *workflowservice.RequestCancelWorkflowExecutionRequest) {
		b.end(s, run.Cancelled, &run.Cause{Trigger: run.TriggerUser, By: r.GetIdentity(), Message: r.GetReason()})
	}
}

func TestCtrlCAsksTheRunToCancelAndShowsIt(t *testing.T) {
	t.Parallel()
	for sig, name := range map[os.Signal]string{syscall.SIGINT: "Ctrl-C", syscall.SIGTERM: "SIGTERM"} {
		b := setup(t)
		made := b.onStart(run.Document{})
		cmd := b.start(t, "run", file(t, "hello.yaml", hello), "--sender", "ann")
		s := <-made
		b.cancels(s)
		cmd.out.says(t, s.w.ID)
		b.signals <- sig
		require.Equal(t, cli.ExitCancelled, cmd.ends(t))
		require.Contains(t, cmd.out.String(), "asked the run to cancel")
		require.Contains(t, cmd.out.String(), "cancelled by ann: "+name)
		require.Len(t, b.server.Asked().Cancels, 1)
		require.Empty(t, b.server.Asked().Signals)
	}
}

func TestSecondCtrlCDetaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	s := <-made
	b.signals <- syscall.SIGINT
	cmd.out.says(t, "asked the run to cancel")
	b.signals <- syscall.SIGTERM // is a first Ctrl-C, which has been
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Contains(t, cmd.err.String(), "it goes on")
	require.Contains(t, cmd.err.String(), "belay watch "+s.w.ID+"@"+s.w.RunID)
}

func TestSecondCtrlCUnderJSONPrintsTheRunAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello), "-o", "json")
	s := <-made
	cmd.err.says(t, s.w.ID)
	b.signals <- syscall.SIGHUP
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Empty(t, b.server.Asked().Cancels, "hanging up leaves the run alone")
	if cmd.out.String() != "" {
		_ = oneDocument[map[string]any](t, cmd.out.String())
	}
}

func TestCtrlCOfWhoAttachedOnlyDetaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	path := file(t, "hello.yaml", hello)
	first := b.start(t, "run", path, "--request-id", "r1", "--detach")
	s := <-made
	require.Equal(t, cli.ExitOK, first.ends(t))
	cmd := b.start(t, "run", path, "--request-id", "r1")
	cmd.out.says(t, "attached to run "+s.w.ID)
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Empty(t, b.server.Asked().Cancels)
}

func TestEmbeddedCtrlC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.Embedded = true
	made := b.onStart(run.Document{})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	<-made
	b.signals <- syscall.SIGINT
	cmd.out.says(t, "Ctrl-C again leaves out finally")
	b.signals <- syscall.SIGINT
	cmd.out.says(t, "leaving out finally")
	require.Eventually(t, func() bool { return len(b.server.Asked().Cancels) == 2 }, patience, tick)
	require.Len(t, b.server.Asked().Signals, 1)
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.NotContains(t, cmd.err.String(), "watch", "nothing remains to look at")
}

func TestCtrlCBeforeTheStartStartsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	connecting := make(chan struct{})
	b.opts.Connect = func(ctx context.Context) (*cli.Connection, error) {
		close(connecting)
		<-ctx.Done() // as a server that did not answer until then
		return nil, serviceerror.NewUnavailable("context canceled")
	}
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	<-connecting
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Contains(t, cmd.err.String(), "interrupted")
	require.Empty(t, b.server.Asked().Starts)
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.Connect = func(context.Context) (*cli.Connection, error) {
		return nil, serviceerror.NewUnavailable("connection refused")
	}
	for _, args := range [][]string{{"run", file(t, "hello.yaml", hello)}, {"list"}, {"status", "x"}, {"cancel", "x"}, {"logs", "x"}, {"watch", "x"}} {
		r := b.exec(t, args...)
		require.Equal(t, cli.ExitUnreachable, r.code, args)
		require.Contains(t, r.err, "connection refused")
	}
}

func TestDetachingNeverTakesTheCancelBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	s := <-made
	cmd.out.says(t, s.w.ID)
	arrived, release := make(chan struct{}), make(chan struct{})
	s.w.Cancelled = func(*workflowservice.RequestCancelWorkflowExecutionRequest) {
		close(arrived)
		<-release
	}
	b.signals <- syscall.SIGINT
	b.signals <- syscall.SIGINT // at once, as programs do that signal a process and its group
	<-arrived
	select {
	case code := <-cmd.done:
		t.Fatalf("left with %d before the cancel had arrived", code)
	default:
	}
	close(release)
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Len(t, b.server.Asked().Cancels, 1)
	require.NotContains(t, cmd.out.String(), "context canceled")
}

// fullDisk is an output that takes nothing, as /dev/full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputThatNobodyTakes leaves the run alone, which goes on, and says so.
func TestOutputThatNobodyTakes(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "watch"} {
		b := setup(t)
		var errOut output
		opts := b.opts
		opts.Out, opts.Err = fullDisk{}, &errOut
		running := run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Running}}}
		args := []string{command, runName}
		if command == "run" {
			b.onStart(running)
			args[1] = file(t, "hello.yaml", hello)
		} else {
			b.add(runName, running)
		}
		require.Equal(t, cli.ExitCancelled, cli.Execute(t.Context(), opts, args), command)
		require.Contains(t, errOut.String(), "no space left on device")
		require.Empty(t, b.server.Asked().Cancels)
	}
}
