package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"belay.run/dev/e2e"
	"belay.run/internal/audit"
	"belay.run/internal/run"
	"belay.run/workflows"
)

// TestOnceInFiveWaves races 50 starters on each of twenty keys: fresh, again inside
// the window, when the window is over, behind a failure, and retried after that
// failure.
func TestOnceInFiveWaves(t *testing.T) {
	t.Parallel()
	const starters = 50
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	env := shared.Get(t)
	c := claims(t, env)

	// wave starts them all and returns the exit codes and the runs that they
	// were told, by key.
	var commands []e2e.Result
	wave := func(file string, more ...string) (codes map[int]int, told map[string]map[string]int, docs []run.Document) {
		results := make([]e2e.Result, starters*len(keys))
		for k, key := range keys {
			racers(starters, func(i int) {
				results[i*len(keys)+k] = env.CLI(t, append([]string{"run", file, "-o", "json", "-i", "k=" + key}, more...)...)
			})
		}
		commands = append(commands, results...)
		codes, told = map[int]int{}, map[string]map[string]int{}
		for i, r := range results {
			var doc run.Document
			require.NoError(t, json.Unmarshal([]byte(r.Stdout), &doc), "%s\n%s", r.Stdout, r.Stderr)
			codes[r.Code]++
			key := keys[i%len(keys)]
			if told[key] == nil {
				told[key] = map[string]int{}
			}
			told[key][doc.ID+"@"+doc.RunID]++
			docs = append(docs, doc)
		}
		return codes, told, docs
	}
	agreed := func(told map[string]map[string]int) {
		t.Helper()
		for key, runs := range told {
			require.Len(t, runs, 1, "the callers of key %s were told of different runs", key)
		}
	}
	perKey := func(n *counter) map[string]int {
		out := map[string]int{}
		for _, l := range n.lines(t) {
			out[l]++
		}
		return out
	}
	all := func(n int) map[string]int {
		out := map[string]int{}
		for _, key := range keys {
			out[key] = n
		}
		return out
	}

	name, ran := pipelineName(), newCounter(t)
	file := write(t, once(name, "window: 10m", ran.add(`"$K"`)))
	codes, told, docs := wave(file)
	require.Equal(t, all(1), perKey(ran), "fresh")
	require.Equal(t, map[int]int{0: len(docs)}, codes, "fresh")
	agreed(told)
	for _, d := range docs {
		require.Equal(t, run.Succeeded, d.Status)
	}
	requireAudited(t, env, name, len(docs)-len(keys), commands)
	got := env.CLI(t, "status", docs[0].ID, "-o", "json")
	var status run.Document
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &status), got.Stderr)
	require.Equal(t, run.Succeeded, status.Status, "status shows the real run")

	codes, told, docs = wave(file)
	require.Equal(t, all(1), perKey(ran), "again inside the window")
	require.Equal(t, map[int]int{0: len(docs)}, codes)
	agreed(told)
	requireAudited(t, env, name, 2*len(docs)-len(keys), commands)

	name, ran = pipelineName(), newCounter(t)
	file = write(t, once(name, "window: 20s", ran.add(`"$K"`)))
	for _, key := range keys {
		require.Equal(t, 0, env.CLI(t, "run", file, "-i", "k="+key).Code)
	}
	for _, key := range keys {
		require.Eventually(t, func() bool { return record(t, c, name, key) == nil }, e2e.Patience, 50*time.Millisecond)
		// Temporal counts from the end of the workflow, a moment later.
		resp, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(),
			run.KeyedID(run.DefaultTenant, run.DefaultProject, name, key), "")
		require.NoError(t, err)
		over := resp.GetWorkflowExecutionInfo().GetCloseTime().AsTime().Add(20 * time.Second)
		require.Eventually(t, func() bool { return time.Now().After(over) }, e2e.Patience, 50*time.Millisecond)
	}
	codes, told, docs = wave(file)
	require.Equal(t, all(2), perKey(ran), "the window is over")
	require.Equal(t, map[int]int{0: len(docs)}, codes)
	agreed(told)

	name, ran = pipelineName(), newCounter(t)
	file = write(t, once(name, "window: 10m", ran.add(`"$K"`)+"; exit 7"))
	codes, told, docs = wave(file)
	for _, d := range docs {
		require.NotNil(t, d.Cause)
		require.Equal(t, run.TriggerExitCode, d.Cause.Trigger, "%s: %s", d.ID, d.Cause)
	}
	require.Equal(t, all(1), perKey(ran), "a failure")
	require.Equal(t, map[int]int{1: len(docs)}, codes, "a failure")
	agreed(told)
	codes, told, _ = wave(file)
	require.Equal(t, all(2), perKey(ran), "a retry that is meant")
	require.Equal(t, map[int]int{1: len(docs)}, codes)
	agreed(told)
}

func TestOnceByHandAndByStarter(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)

	t.Run("AttachesToWhatRunsAndEndsLikeIt", func(t *testing.T) {
		t.Parallel()
		for script, want := range map[string]int{"exit 0": 0, "exit 5": 1} {
			name, ran := pipelineName(), newCounter(t)
			text := once(name, "window: 10m", ran.add("ran")+"; while ! test -e '"+ran.path+".go'; do sleep 0.1; done; "+script)
			first := raw(t, env, text)
			first.WaitNode("s/a", run.Running)
			second := raw(t, env, text)
			doc := second.WaitFor("it says what it waits for", func(d *run.Document) bool { return d.WaitingFor != nil })
			require.Equal(t, "claim", doc.WaitingFor.Kind)
			require.Equal(t, first.String(), doc.WaitingFor.Holder)
			result := make(chan e2e.Result, 1)
			file := write(t, text)
			go func() { result <- env.CLI(t, "run", file, "-o", "json") }()
			require.Eventually(t, func() bool { return len(audited(t, env, name)) == 2 }, e2e.Patience, 50*time.Millisecond)
			touch(t, ran.path+".go")
			original := first.Wait()
			doc = second.Wait()
			require.Equal(t, run.Duplicate, doc.Status)
			require.Equal(t, original.Cause, doc.Cause)
			require.Equal(t, first.ID, doc.DuplicateOf)
			require.Equal(t, want == 0, completed(t, env, second), "it closes like its original")
			got := <-result
			require.Equal(t, want, got.Code, got.Stderr)
			var followed run.Document
			require.NoError(t, json.Unmarshal([]byte(got.Stdout), &followed))
			require.Equal(t, first.ID, followed.ID)
			require.Equal(t, first.ID, followed.DuplicateOf)
			require.Len(t, ran.lines(t), 1)
		}
	})

	t.Run("RejectsWithCodeThreeAndNamesTheRun", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		text := once(name, "window: 10m, on_duplicate: reject", ran.add("ran")+"; while ! test -e '"+ran.path+".go'; do sleep 0.1; done")
		first := raw(t, env, text)
		first.WaitNode("s/a", run.Running)
		rejected := func() {
			t.Helper()
			doc, got := env.RunFile(t, write(t, text))
			require.Equal(t, 3, got.Code, got.Stderr)
			require.Equal(t, run.Duplicate, doc.Status)
			require.Equal(t, first.ID, doc.DuplicateOf)
		}
		rejected()
		touch(t, ran.path+".go")
		require.Equal(t, run.Succeeded, first.Wait().Status)
		rejected()
		got := env.CLI(t, "run", write(t, text))
		require.Equal(t, 3, got.Code)
		require.Contains(t, got.Stderr, first.String())
		require.Len(t, ran.lines(t), 1)
	})

	t.Run("RefusesOtherInputsUnderOneKeyWhereTheFileSaysSo", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		file := write(t, once(name, "window: 10m, on_mismatch: reject", ran.add("ran")))
		require.Equal(t, 0, env.CLI(t, "run", file).Code)
		require.Equal(t, 0, env.CLI(t, "run", file).Code)
		require.Equal(t, 3, env.CLI(t, "run", file, "-i", "other=y").Code)
		r := raw(t, env, once(name, "window: 10m, on_mismatch: reject", ran.add("ran")), e2e.Inputs(map[string]string{"other": "z"}))
		doc := r.Wait()
		require.Equal(t, run.Duplicate, doc.Status)
		require.True(t, doc.Rejected)
		require.Len(t, ran.lines(t), 1)
	})

	t.Run("RunsAgainWhereThatIsMeant", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		file := write(t, once(name, "window: 10m", ran.add(`"$BELAY_IDEMPOTENCY_KEY"`)))
		require.Equal(t, 0, env.CLI(t, "run", file).Code)
		require.Equal(t, 0, env.CLI(t, "run", file, "--rerun").Code)
		require.Len(t, ran.lines(t), 2)
		entries := audited(t, env, name)
		require.Len(t, entries, 1)
		require.Equal(t, audit.Rerun, entries[0].Decision)
		require.Equal(t, 0, env.CLI(t, "run", file).Code)
		require.Len(t, ran.lines(t), 2)
	})

	t.Run("AnswersARedeliveryAfterAFailureWithItAndRunsARetry", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		file := write(t, once(name, "window: 10m", ran.add("ran")+"; exit 3"))
		id := uuid.NewString()
		doc, got := env.RunFile(t, file, "--request-id", id)
		require.Equal(t, 1, got.Code)
		again, got := env.RunFile(t, file, "--request-id", id, "--sender", "queue")
		require.Equal(t, 1, got.Code)
		require.Equal(t, doc.RunID, again.RunID)
		byHand := raw(t, env, once(name, "window: 10m", ran.add("ran")), func(in *workflows.PipelineInput) { in.RequestID = id }).Wait()
		require.Equal(t, run.Duplicate, byHand.Status)
		require.Len(t, ran.lines(t), 1)
		_, got = env.RunFile(t, file)
		require.Equal(t, 1, got.Code)
		require.Len(t, ran.lines(t), 2)
		again, _ = env.RunFile(t, file, "--request-id", id)
		require.Equal(t, doc.RunID, again.RunID, "its own run, also after others ran")
		require.Len(t, ran.lines(t), 2)
		require.Equal(t, audit.Redelivery, audited(t, env, name)[2].RootCause)
	})

	t.Run("RunsOneOfTwoEventsOfOneCommit", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		file := write(t, once(name, "window: 10m", ran.add("ran")))
		racers(2, func(i int) {
			require.Equal(t, 0, env.CLI(t, "run", file, "-i", "k=commit", "--sender", []string{"push", "pull_request"}[i]).Code)
		})
		require.Len(t, ran.lines(t), 1)
		entries := audited(t, env, name)
		require.Len(t, entries, 1)
		require.Equal(t, audit.CrossInstance, entries[0].RootCause)
	})

	t.Run("FreesTheKeyOfWhatIsEnded", func(t *testing.T) {
		t.Parallel()
		name, ran := pipelineName(), newCounter(t)
		for i, end := range []func(r *e2e.Run){
			func(r *e2e.Run) { r.Cancel("not now") },
			func(r *e2e.Run) {
				require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
			},
		} {
			text := once(name, "window: 10m", ran.add("ran")+"; sleep 60")
			own := e2e.Inputs(map[string]string{"k": fmt.Sprint(i)})
			r := raw(t, env, text, own)
			require.Eventually(t, func() bool { return len(ran.lines(t)) == 2*i+1 }, e2e.Patience, 20*time.Millisecond)
			end(r)
			require.Equal(t, run.Cancelled, r.Wait().Status)
			waitDead(t, env, r) // what was terminated unwinds after its end
			next := raw(t, env, once(name, "window: 10m", ran.add("ran")), own)
			require.Equal(t, run.Succeeded, next.Wait().Status)
			require.Len(t, ran.lines(t), 2*i+2)
		}
	})
}

func TestReplace(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	name, ran := pipelineName(), newCounter(t)
	text := func(word, more string) string {
		return once(name, "window: 10m, on_duplicate: replace", ran.add(word)+more,
			"    finally: [{name: tidy, run: \""+"echo tidied-"+word+" >> '"+ran.path+"'; sleep 3\"}]")
	}
	first := raw(t, env, text("first", "; sleep 60"))
	ran.await(t, 1)
	second := raw(t, env, text("second", "; sleep 60"))
	second.WaitFor("it waits for the first", func(d *run.Document) bool { return d.WaitingFor != nil && d.WaitingFor.Kind == "claim" })
	first.WaitNode("s/tidy", run.Running)
	third := raw(t, env, text("third", ""))
	require.Equal(t, run.Cancelled, second.Wait().Status, "the third replaces the second in its wait")
	require.Equal(t, run.TriggerSuperseded, second.Wait().Cause.Trigger)
	doc := first.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, run.TriggerSuperseded, doc.Cause.Trigger)
	require.Equal(t, run.Succeeded, third.Wait().Status)
	require.Equal(t, []string{"first", "tidied-first", "third", "tidied-third"}, ran.lines(t), "nothing of the third ran before the first was gone")
}

// TestReplaceEndsARunInBackOff: the next attempt of what was replaced never
// starts.
func TestReplaceEndsARunInBackOff(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	name, ran := pipelineName(), newCounter(t)
	dedup := "window: 10m, on_duplicate: replace"
	first := raw(t, env, once(name, dedup, ran.add("first")+"; exit 1", "        retry: {max_attempts: 5, initial_interval: 5s}"))
	ran.await(t, 1)
	second := raw(t, env, once(name, dedup, ran.add("second")+"; sleep 8"))
	require.Equal(t, run.Cancelled, first.Wait().Status)
	require.Equal(t, run.Succeeded, second.Wait().Status)
	require.Equal(t, []string{"first", "second"}, ran.lines(t))
}

func touch(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o644))
}

// completed reports whether a run's workflow closed as Completed.
func completed(t *testing.T, env *e2e.Env, r *e2e.Run) bool {
	t.Helper()
	resp, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(), r.ID, r.RunID)
	require.NoError(t, err)
	return resp.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}
