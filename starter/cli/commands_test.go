package cli_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/starter/cli"
)

const (
	patience = time.Minute
	tick     = time.Millisecond
	runName  = "default/default/hello/r/one"
	runKey   = "0a1b2c3d-0000-4000-8000-000000000001"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.add(runName, run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Running}}})
	r := b.exec(t, "status", runName)
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "run "+runName+" (http://ui/")
	require.Contains(t, r.out, "greet")
	require.NotContains(t, r.out, "\x1b")

	b.end(s, run.Failed, &run.Cause{Trigger: run.TriggerExitCode, Source: "greet/say"})
	r = b.exec(t, "status", s.w.RunID[:8], "-o", "json")
	require.Equal(t, cli.ExitOK, r.code, "looking at a run that failed is no failure")
	require.Equal(t, run.Failed, oneDocument[run.Document](t, r.out).Status)
	r = b.exec(t, "status", runName)
	require.Contains(t, r.out, "hello failed after")

	r = b.exec(t, "status", "nobody", "-o", "json")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.out, `no run \"nobody\"`)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.add(runName, run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Running}}})
	text, lines := b.start(t, "watch", runName), b.start(t, "watch", runName, "-o", "json")
	text.out.says(t, "greet running")
	lines.out.says(t, "\n")
	b.end(s, run.TimedOut, &run.Cause{Trigger: run.TriggerPipelineTimeout})
	require.Equal(t, cli.ExitTimedOut, text.ends(t))
	require.Equal(t, cli.ExitTimedOut, lines.ends(t))
	var last run.Document
	for line := range strings.Lines(lines.out.String()) {
		require.NoError(t, json.Unmarshal([]byte(line), &last))
	}
	require.Equal(t, run.TimedOut, last.Status)
}

func TestWatchIsLeftByCtrlC(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(runName, run.Document{})
	cmd := b.start(t, "watch", runName)
	cmd.out.says(t, "run "+runName)
	b.signals <- syscall.SIGINT
	require.Equal(t, cli.ExitCancelled, cmd.ends(t))
	require.Empty(t, b.server.Asked().Cancels)
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.exec(t, "list")
	require.Equal(t, cli.ExitOK, r.code)
	require.Contains(t, r.err, "no runs")
	r = b.exec(t, "list", "-o", "json")
	require.JSONEq(t, `{"runs": []}`, r.out)

	b.add(runName, run.Document{})
	r = b.exec(t, "list")
	require.Contains(t, r.out, "STATUS   PIPELINE  STARTED")
	require.Contains(t, r.out, runName)
	docs := oneDocument[struct{ Runs []run.Document }](t, b.exec(t, "list", "--pipeline", "hello", "-o", "json").out)
	require.Len(t, docs.Runs, 1)
	require.Equal(t, run.Running, docs.Runs[0].Status)
	for _, bad := range [][]string{
		{"list", "--status", "done"}, {"list", "--since", "yesterday"}, {"list", "--limit", "0"}, {"list", "x"},
	} {
		require.Equal(t, cli.ExitUsage, b.exec(t, bad...).code, bad)
	}
	require.Contains(t, b.exec(t, "list", "--since", "7d", "--status", "canceled").err, "no runs")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.add(runName, run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Pending}}})
	r := b.exec(t, "cancel", runName, "--reason", "wrong tag")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "asked run "+runName+" to cancel")
	require.Equal(t, "wrong tag", b.server.Asked().Cancels[0].GetReason())
	require.Contains(t, b.server.Asked().Cancels[0].GetIdentity(), "@")

	r = b.exec(t, "cancel", runName, "--now", "-o", "json")
	require.Equal(t, cli.ExitOK, r.code)
	require.Equal(t, true, oneDocument[map[string]any](t, r.out)["requested"])
	require.Len(t, b.server.Asked().Signals, 1)

	r = b.exec(t, "cancel", runName, "--node", "greet")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "it has not started")
	r = b.exec(t, "cancel", runName, "--node", "great")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "there are: greet")
	require.Equal(t, cli.ExitUsage, b.exec(t, "cancel", runName, "--node", "greet", "--now").code)

	b.cancels(s)
	r = b.exec(t, "cancel", runName, "--wait", "-o", "json")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, run.Cancelled, oneDocument[run.Document](t, r.out).Status)
	require.Contains(t, r.err, "confirmed after")
	require.Equal(t, cli.ExitOK, b.exec(t, "cancel", runName).code, "it is cancelled already")
}

// TestCancelOfAnEmptyNode cancels nothing: the variable that was to name the
// node was not set.
func TestCancelOfAnEmptyNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(runName, run.Document{})
	for _, more := range [][]string{nil, {"--now"}} {
		r := b.exec(t, append([]string{"cancel", runName, "--node", ""}, more...)...)
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "--node is empty")
	}
	require.Empty(t, b.server.Asked().Cancels)
	require.Empty(t, b.server.Asked().Signals)
}

func TestCancelOfARunThatEndedOtherwise(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.end(b.add(runName, run.Document{}), run.Succeeded, nil)
	r := b.exec(t, "cancel", runName)
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "has already ended: succeeded")
	require.Empty(t, b.server.Asked().Cancels)
}

func TestCancelOfANodeThatIsCancelledAlready(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cancels(b.add(runName, run.Document{Stages: []run.Stage{
		{Name: "greet", Node: "greet", Status: run.Cancelled}, {Name: "part", Node: "part", Status: run.Skipped},
	}}))
	for range 2 { // while it runs, and after it has ended
		r := b.exec(t, "cancel", runName, "--node", "greet")
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Contains(t, r.out, "greet of run "+runName+" is already cancelled")
		r = b.exec(t, "cancel", runName, "--node", "nope")
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "there are: greet, part")
		r = b.exec(t, "cancel", runName, "--node", "part")
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "it has already ended: skipped")
		require.Equal(t, cli.ExitOK, b.exec(t, "cancel", runName, "--wait").code)
	}
}

func TestCancelWaitTellsWhatLeaked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.add(runName, run.Document{Stages: []run.Stage{{
		Name: "greet", Node: "greet", Status: run.Cancelled,
		Resources: []run.Resource{{Kind: "port", Name: "8080", State: "leaked"}},
	}}})
	b.cancels(s)
	r := b.exec(t, "cancel", runName, "--wait")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "not released: port 8080 of greet")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good, bad := file(t, "good.yaml", hello), file(t, "bad.yaml", "name: x\nstagse: []\n")
	r := b.exec(t, "validate", good)
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, good+": ok\n", r.out)
	r = b.exec(t, "validate", good, bad, "/nowhere.yaml")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.out, good+": ok")
	require.Contains(t, r.out, bad+":2:1:")
	require.Contains(t, r.out, "^")
	require.Contains(t, r.out, "/nowhere.yaml: 1 error")
	require.Empty(t, r.err)
	r = b.exec(t, "validate", good, bad, "-o", "json")
	require.Equal(t, cli.ExitUsage, r.code)
	doc := oneDocument[struct {
		Files []struct {
			Path     string
			Errors   []map[string]any
			Warnings []map[string]any
		}
	}](t, r.out)
	require.Len(t, doc.Files, 2)
	require.NotNil(t, doc.Files[0].Errors)
	require.NotNil(t, doc.Files[0].Warnings)
	require.NotEmpty(t, doc.Files[1].Errors)
	for _, field := range []string{"line", "column", "message", "hint"} {
		require.Contains(t, doc.Files[1].Errors[0], field)
	}
}

// TestValidateOfStrangeFiles says what is wrong with files that are none, and
// counts what is wrong with others.
func TestValidateOfStrangeFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	var many strings.Builder
	many.WriteString("name: x\n")
	for i := range 801 {
		fmt.Fprintf(&many, "bad%d: 1\n", i)
	}
	many.WriteString("stages: [{name: s, steps: [{name: a, run: echo}]}]\n")
	for name, tc := range map[string]struct{ path, want string }{
		"named pipe":  {pipe, "pipe is no regular file"},
		"device":      {"/dev/zero", "/dev/zero is no regular file"},
		"directory":   {t.TempDir(), "is a directory: name a file"},
		"large":       {file(t, "large.yaml", hello+strings.Repeat("# much\n", 1<<20)), "the file is larger than 1 MiB"},
		"many errors": {file(t, "many.yaml", many.String()), "many.yaml: 801 errors"},
		"no name": {
			file(t, "noname.yaml", "name: x\nstages: [{name: 'a b', needs: [c], steps: [{name: a, run: echo}]}]\n"),
			"the stage needs \"c\", which is no stage",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := b.exec(t, "validate", tc.path)
			require.Equal(t, cli.ExitUsage, r.code)
			require.Contains(t, r.out, tc.want)
			require.NotContains(t, r.out, "1048577")
		})
	}
	r := b.exec(t, "run", file(t, "many.yaml", many.String()))
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, ": 801 errors")
	r = b.exec(t, "run", file(t, "good.yaml", hello), "--inputs-file", t.TempDir())
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "is a directory: name a file")
}

func TestVersionSchemaHelpAndCompletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.opts.Version = "1.2.3"
	require.Contains(t, b.exec(t, "version").out, "belay 1.2.3\n")
	require.Equal(t, "1.2.3", oneDocument[map[string]any](t, b.exec(t, "version", "-o", "json").out)["version"])
	require.Contains(t, oneDocument[map[string]any](t, b.exec(t, "schema").out), "$schema")
	help := b.exec(t)
	require.Equal(t, cli.ExitOK, help.code)
	for _, command := range []string{"run", "validate", "status", "watch", "list", "logs", "cancel", "schema", "completion", "version"} {
		require.Contains(t, help.out, "\n  "+command+" ")
	}
	require.Contains(t, b.exec(t, "completion", "bash").out, "bash completion")
	require.Equal(t, cli.ExitOK, b.exec(t, "completion").code)
	tcsh := b.exec(t, "completion", "tcsh")
	require.Equal(t, cli.ExitUsage, tcsh.code)
	require.Contains(t, tcsh.err, `unknown command "tcsh"`)
	r := b.exec(t, "cancle")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "did you mean cancel?")
}
