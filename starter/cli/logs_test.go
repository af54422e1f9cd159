package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/starter/cli"
)

// writeLog writes the log of one attempt of a step.
func (b *bundle) writeLog(t *testing.T, node string, attempt int, text string) {
	t.Helper()
	w, err := b.logs.Open(t.Context(), logs.Step{RunKey: runKey, Node: node, Attempt: attempt}, logs.Options{})
	require.NoError(t, err)
	_, err = w.Stdout().Write([]byte(text))
	require.NoError(t, err)
	_, err = w.Close(t.Context())
	require.NoError(t, err)
}

// twoSteps is a run with logs of two steps, one of them tried twice.
func twoSteps(t *testing.T) (*bundle, *state) {
	t.Helper()
	b := setup(t)
	step := func(name string, s run.Status) run.Step {
		return run.Step{Name: name, Node: "greet/" + name, Status: s, Attempts: 1}
	}
	s := b.add(runName, run.Document{Stages: []run.Stage{{
		Name: "greet", Node: "greet", Status: run.Running,
		Steps: []run.Step{step("say", run.Succeeded), step("bad", run.Failed), step("mute", run.Succeeded)},
	}}})
	b.writeLog(t, "greet/say", 1, "hello\nyou")
	b.writeLog(t, "greet/bad", 1, "first try\n")
	b.writeLog(t, "greet/bad", 2, "second \xff\x1b[2Jtry\n")
	return b, s
}

func TestLogsOfAStepAreItsBytes(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	r := b.exec(t, "logs", runName, "greet/say")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, "hello\nyou", r.out)
	r = b.exec(t, "logs", runName, "greet/bad", "--attempt", "2")
	require.Equal(t, "second \xff\x1b[2Jtry\n", r.out)
	r = b.exec(t, "logs", runName, "greet/say", "--timestamps")
	stamp := regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `)
	require.Len(t, stamp.FindAllString(r.out, -1), 2)
	require.Equal(t, "hello\nyou", stamp.ReplaceAllString(r.out, ""))
}

func TestLogsOfSeveralStepsNameThem(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	for _, args := range [][]string{{"logs", runName}, {"logs", runName, "greet"}} {
		r := b.exec(t, args...)
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Contains(t, r.out, "[greet/say] hello\n")
		require.Contains(t, r.out, "[greet/say] you\n")
		require.Contains(t, r.out, "[greet/bad] first try\n")
	}
}

func TestLogsOfNoNode(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	r := b.exec(t, "logs", runName, "greet/mute")
	require.Equal(t, cli.ExitOK, r.code, "a step that printed nothing")
	require.Empty(t, r.out)
	r = b.exec(t, "logs", runName, "greet/nobody")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "there are: greet/say, greet/bad, greet/mute")
	r = b.exec(t, "logs", runName, "nowhere")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "there are: greet")
	for args, says := range map[string]string{
		"":           "--attempt 9: the last of run " + runName + " is 2",
		"greet/bad":  "--attempt 9: the last of greet/bad is 2",
		"greet":      "the last of greet is 2",
		"greet/mute": "the last of greet/mute is 1",
	} {
		r = b.exec(t, append([]string{"logs", runName, "--attempt", "9"}, strings.Fields(args)...)...)
		require.Equal(t, cli.ExitUsage, r.code, args)
		require.Contains(t, r.err, says)
	}
	r = b.exec(t, "logs", runName, "greet/mute", "--attempt", "1")
	require.Equal(t, cli.ExitOK, r.code, "an attempt that printed nothing: %s", r.err)
	for _, attempt := range []string{"-1", "0"} {
		r = b.exec(t, "logs", runName, "--attempt", attempt)
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "attempts count from 1")
	}
}

type jsonLine struct {
	Time, Node, Stream, Text string
	Attempt                  int
	Bytes                    []byte
	Partial                  bool
}

// TestLogsOfAnotherStore says that it is the wrong one, where steps have begun
// and it has nothing of them; a run that has printed nothing is no error.
func TestLogsOfAnotherStore(t *testing.T) {
	t.Parallel()
	code := 0
	for name, tc := range map[string]struct {
		step run.Step
		logs bool
		want int
	}{
		"ended":        {run.Step{Status: run.Succeeded, Attempts: 1, ExitCode: &code}, false, cli.ExitFailed},
		"runs":         {run.Step{Status: run.Running, Attempts: 1}, false, cli.ExitFailed},
		"waits":        {run.Step{Status: run.Running, Attempts: 1, WaitingFor: &run.WaitingFor{Kind: "process_slot"}}, false, cli.ExitOK},
		"light":        {run.Step{Status: run.Succeeded, Attempts: 1}, false, cli.ExitOK},
		"not begun":    {run.Step{Status: run.Pending}, false, cli.ExitOK},
		"said nothing": {run.Step{Status: run.Succeeded, Attempts: 1, ExitCode: &code}, true, cli.ExitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tc.step.Name, tc.step.Node = "say", "greet/say"
			b.add(runName, run.Document{Stages: []run.Stage{{
				Name: "greet", Node: "greet", Status: run.Running, Host: "h", Steps: []run.Step{tc.step},
			}}})
			if tc.logs {
				b.writeLog(t, "greet/say", 1, "")
			}
			r := b.exec(t, "logs", runName)
			require.Equal(t, tc.want, r.code, r.err)
			require.Empty(t, r.out)
			if tc.want != cli.ExitOK {
				require.Contains(t, r.err, "the store "+b.store.String()+" has no logs of run "+runName)
				require.Contains(t, r.err, "BELAY_STORE")
			}
		})
	}
}

func TestLogsAsJSON(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	r := b.exec(t, "logs", runName, "-o", "json")
	doc := oneDocument[struct{ Lines []jsonLine }](t, r.out)
	byText := map[string]jsonLine{}
	for _, l := range doc.Lines {
		require.NotEmpty(t, l.Time)
		byText[l.Text] = l
	}
	require.Len(t, byText, 4)
	require.Equal(t, "greet/say", byText["hello"].Node)
	require.False(t, byText["hello"].Partial)
	require.True(t, byText["you"].Partial, "the line never ended")
	bad := byText["second \uFFFD\x1b[2Jtry"]
	require.Equal(t, 2, bad.Attempt)
	require.Equal(t, "stdout", bad.Stream)
	require.Equal(t, []byte("second \xff\x1b[2Jtry"), bad.Bytes)

	r = b.exec(t, "logs", runName, "greet/mute", "-o", "json")
	require.JSONEq(t, `{"lines": []}`, r.out)
}

func TestLogsAsJSONCutLongLines(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	long := bytes.Repeat([]byte("0123456789"), 250_000)
	b.writeLog(t, "greet/long", 1, string(long)+"\nend\n")
	doc := oneDocument[struct{ Lines []jsonLine }](t, b.exec(t, "logs", runName, "greet/long", "-o", "json").out)
	var text strings.Builder
	for _, l := range doc.Lines[:len(doc.Lines)-1] {
		require.LessOrEqual(t, len(l.Text), 1<<20)
		text.WriteString(l.Text)
	}
	require.Equal(t, string(long), text.String())
	require.False(t, doc.Lines[len(doc.Lines)-2].Partial)
	require.Equal(t, "end", doc.Lines[len(doc.Lines)-1].Text)
}

func TestLogsFollowUntilTheRunEnds(t *testing.T) {
	t.Parallel()
	b, s := twoSteps(t)
	text := b.start(t, "logs", runName, "greet/say", "-f")
	lines := b.start(t, "logs", runName, "greet/say", "-f", "-o", "json")
	text.out.says(t, "hello")
	lines.out.says(t, "hello")
	b.writeLog(t, "greet/say", 2, "again\n")
	text.out.says(t, "again")
	b.end(s, run.Failed, &run.Cause{Trigger: run.TriggerExitCode})
	require.Equal(t, cli.ExitOK, text.ends(t))
	require.Equal(t, cli.ExitOK, lines.ends(t))
	var n int
	for line := range strings.Lines(lines.out.String()) {
		var l jsonLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		n++
	}
	require.Equal(t, 3, n)
}

func TestRunPrintsLogsAfterTheStepHasBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{Stages: []run.Stage{{Name: "greet", Node: "greet", Status: run.Pending}}})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	s := <-made
	cmd.out.says(t, s.w.ID)
	w, err := b.logs.Open(t.Context(), logs.Step{RunKey: s.w.RunID, Node: "greet/say", Attempt: 1}, logs.Options{})
	require.NoError(t, err)
	_, err = fmt.Fprintln(w.Stdout(), "hello you")
	require.NoError(t, err)
	_, err = w.Close(t.Context())
	require.NoError(t, err)
	s.set(func(d *run.Document) {
		d.Stages[0].Status = run.Running
		d.Stages[0].Steps = []run.Step{{Name: "say", Node: "greet/say", Status: run.Running, Attempts: 1}}
	})
	cmd.out.says(t, "[greet/say] hello you")
	b.end(s, run.Succeeded, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t))
	out := cmd.out.String()
	require.Less(t, strings.Index(out, "greet/say running"), strings.Index(out, "[greet/say] hello you"))
	require.Less(t, strings.Index(out, "[greet/say] hello you"), strings.Index(out, "hello succeeded"))
}

func TestStatusShowsTheLastLinesOfWhatFailed(t *testing.T) {
	t.Parallel()
	b, _ := twoSteps(t)
	r := b.exec(t, "status", runName)
	require.Contains(t, r.out, "second \uFFFDtry")
	require.NotContains(t, r.out, "first try", "of an earlier attempt")
}

func TestRunGoesOnWithoutLogs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	connect := b.opts.Connect
	b.opts.Connect = func(ctx context.Context) (*cli.Connection, error) {
		c, err := connect(ctx)
		c.Logs = func(context.Context) (*logs.Logs, error) { return nil, fmt.Errorf("no such directory") }
		return c, err
	}
	made := b.onStart(run.Document{})
	cmd := b.start(t, "run", file(t, "hello.yaml", hello))
	s := <-made
	cmd.out.says(t, "no logs: no such directory")
	b.end(s, run.Succeeded, nil)
	require.Equal(t, cli.ExitOK, cmd.ends(t))
}
