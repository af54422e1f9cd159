package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// marked are the living processes of this machine whose command line holds mark.
func marked(t *testing.T, mark string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var pids []int
	for _, dir := range dirs {
		cmd, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(cmd), mark) {
			continue // it has ended meanwhile, or is another's
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func requireGone(t *testing.T, mark string) {
	t.Helper()
	require.Empty(t, marked(t, mark), "processes that should be gone")
}

// seconds is a duration for sleep that no other test uses, so that its
// processes can be told from others.
func seconds(n int) string { return fmt.Sprintf("%d.%d", n, os.Getpid()) }

func TestTimeoutOfARunEndsAllItsStages(t *testing.T) {
	t.Parallel()
	mark := seconds(399)
	// A stage has as long as its run, from when it begins: first sees to it that
	// the clock of the run is ahead of theirs.
	r := shared.Get(t).Run(t, `
version: 1
name: late
timeout: 9s
stages:
  - {name: first, steps: [{name: a, run: sleep 3}]}
  - {name: one, needs: [first], steps: [{name: a, run: sleep `+mark+`}], finally: [{name: tidy, run: echo tidied}]}
  - {name: two, needs: [first], steps: [{name: b, run: sleep `+mark+`}]}
`)
	doc := r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.TimedOut, doc.Status)
	require.Contains(t, []run.Status{run.Cancelled, run.TimedOut, run.Skipped}, e2e.Nodes(doc)["two/b"].Status)
	replay(t, shared.Get(t), "36_run_timed_out", doc)
}

func TestCancelEndsTheWholeTreeAndRunsFinally(t *testing.T) {
	t.Parallel()
	mark := seconds(301)
	r := shared.Get(t).Run(t, `
version: 1
name: tree
stages:
  - name: s
    steps:
      - name: deep
        grace_period: 1s
        run: |
          echo "a line before"
          setsid sleep `+mark+` &
          (setsid sh -c 'sleep `+mark+` & sleep `+mark+`' &)
          sleep `+mark+` &
          echo ready
          wait
      - {name: after, run: echo after}
    finally:
      - {name: tidy, run: echo tidied}
  - {name: next, needs: [s], steps: [{name: n, run: echo n}]}
finally:
  - {name: report, run: echo reported}
`)
	r.WaitLog("s/deep", "ready")
	require.NotEmpty(t, marked(t, mark))
	r.Cancel("wrong tag")
	doc := r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, &run.Cause{Trigger: run.TriggerUser, Message: "wrong tag", By: "test@e2e"}, doc.Cause)
	nodes := e2e.Nodes(doc)
	require.Equal(t, run.Cancelled, nodes["s/deep"].Status)
	require.Equal(t, run.Skipped, nodes["s/after"].Status)
	require.Equal(t, run.Skipped, nodes["next"].Status)
	require.Equal(t, run.Succeeded, nodes["s/tidy"].Status)
	require.Equal(t, run.Succeeded, nodes["finally/report"].Status)
	require.Contains(t, r.Log("s/deep"), "a line before")
	require.Contains(t, r.Log("s/deep"), "\ncancelled", "the log says why it ended")
	replay(t, shared.Get(t), "30_cancelled", doc)
}

func TestCancelWithoutAReasonNamesWhoAsked(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(302)
	r := env.Run(t, `
version: 1
name: quiet
stages: [{name: s, steps: [{name: quiet, grace_period: 1s, run: "sleep `+mark+`"}]}]
`)
	r.WaitNode("s/quiet", run.Running)
	require.NoError(t, env.Temporal.Client().CancelWorkflow(t.Context(), r.ID, r.RunID))
	doc := r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, run.TriggerUser, doc.Cause.Trigger)
	require.NotEmpty(t, doc.Cause.By)
}

func TestCancelHonoursTheGracePeriod(t *testing.T) {
	t.Parallel()
	r := shared.Get(t).Run(t, `
version: 1
name: grace
stages:
  - name: s
    steps:
      - name: polite
        grace_period: 30s
        run: |
          trap 'echo "asked"; sleep 1; echo "tidied"; exit 0' TERM
          echo ready
          while :; do sleep 0.1; done
`)
	r.WaitLog("s/polite", "ready")
	r.Cancel("")
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status, "a cancelled run never ends succeeded")
	require.Contains(t, r.Log("s/polite"), "asked\n")
	require.Contains(t, r.Log("s/polite"), "tidied\n")
}

func TestCancelOfOneStep(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(303)
	r := env.Run(t, `
version: 1
name: one
stages:
  - name: s
    steps:
      - name: g
        parallel:
          - {name: stuck, on_failure: ignore, grace_period: 1s, run: "sleep `+mark+`"}
          - {name: fine, run: "echo fine"}
      - {name: after, run: echo after}
`)
	r.WaitNode("s/stuck", run.Running)
	got := env.CLI(t, "cancel", r.ID, "--node", "s/stuck", "--reason", "stuck")
	require.Equal(t, 0, got.Code, got.Stderr)
	doc := r.Wait()
	requireGone(t, mark)
	nodes := e2e.Nodes(doc)
	require.Equal(t, run.Cancelled, nodes["s/stuck"].Status)
	require.Equal(t, "stuck", nodes["s/stuck"].Cause.Message)
	require.NotEqual(t, run.Cancelled, nodes["s/fine"].Status)
}

func TestTerminateUnwindsTwelveStages(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(304)
	var file strings.Builder
	file.WriteString("version: 1\nname: twelve\nstages:\n")
	for i := range 12 {
		fmt.Fprintf(&file, "  - {name: s%d, steps: [{name: a, grace_period: 1s, run: 'sleep %s'}]}\n", i, mark)
	}
	r := env.Run(t, file.String())
	r.WaitFor("all stages run a process", func(*run.Document) bool { return len(marked(t, mark)) >= 12 })
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, e2e.Patience, 50*time.Millisecond)
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
}

// TestCancelWaitsForWhatATerminateLeft: a run that was terminated has ended in
// Temporal's eyes; who asks for the confirmed end gets that.
func TestCancelWaitsForWhatATerminateLeft(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	for _, command := range []string{"cancel --wait", "watch"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			tidied := newCounter(t)
			r := env.Run(t, `
version: 1
name: terminated-and-waited-for
stages:
  - name: s
    steps: [{name: a, run: sleep 300, grace_period: 1s}]
    finally: [{name: tidy, run: "sleep 2; `+tidied.add("tidied")+`"}]
`)
			r.WaitNode("s/a", run.Running)
			require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
			got := env.CLI(t, append(strings.Fields(command), r.String())...)
			require.Contains(t, got.Stdout, "cancelled", got.Stderr)
			require.Len(t, tidied.lines(t), 1, "it returned before the stage had ended:\n%s%s", got.Stdout, got.Stderr)
		})
	}
}

func TestSecondCancelDoesNotCutFinallyShort(t *testing.T) {
	t.Parallel()
	r := shared.Get(t).Run(t, `
version: 1
name: twice
stages:
  - name: s
    steps: [{name: a, grace_period: 1s, run: "sleep `+seconds(305)+`"}]
    finally:
      - {name: tidy, run: "echo begun; sleep 2; echo tidied"}
`)
	r.WaitNode("s/a", run.Running)
	r.Cancel("first")
	r.WaitLog("s/tidy", "begun")
	r.Cancel("second")
	doc := r.Wait()
	require.Equal(t, "first", doc.Cause.Message)
	require.Contains(t, r.Log("s/tidy"), "tidied")
}

func TestCancelNowLeavesOutFinally(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	r := env.Run(t, `
version: 1
name: now
stages:
  - name: s
    steps: [{name: a, grace_period: 1s, run: "sleep `+seconds(306)+`"}]
    finally: [{name: tidy, run: "echo tidied"}]
finally: [{name: report, run: "echo reported"}]
`)
	r.WaitNode("s/a", run.Running)
	got := env.CLI(t, "cancel", r.ID, "--now", "--wait")
	require.Equal(t, 0, got.Code, got.Stderr)
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Empty(t, r.Log("s/tidy"))
	require.Equal(t, run.Skipped, e2e.Nodes(doc)["s/tidy"].Status)
	require.NotContains(t, e2e.Nodes(doc), "finally/report")
}
