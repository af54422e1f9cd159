package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/testkit/need"
	"belay.run/workflows"
)

// keyedStep is a pipeline without a key whose only step has one.
func keyedStep(name, key, dedup, script string, more ...string) string {
	return fmt.Sprintf(`
version: 1
name: %s
timeout: 5m
stages:
  - name: s
%s
    steps:
      - name: a
        grace_period: 1s
        timeout: 2m
        dedup: {key: "%s", window: 10m, %s}
        run: |
          %s
%s`, name, labelOf(more), key, dedup, strings.ReplaceAll(script, "\n", "\n          "), rest(more))
}

// labelOf and rest part what goes to the stage from what goes to the step.
func labelOf(more []string) string {
	for _, m := range more {
		if label, ok := strings.CutPrefix(m, "@"); ok {
			return "    runs_on: " + label
		}
	}
	return ""
}

func rest(more []string) string {
	var b strings.Builder
	for _, m := range more {
		if !strings.HasPrefix(m, "@") {
			b.WriteString(m + "\n")
		}
	}
	return b.String()
}

// stepRecord is the claim under a step's key.
func stepRecord(t *testing.T, c *dedup.Claims, name string) *dedup.Record {
	t.Helper()
	r, err := c.Lookup(t.Context(), dedup.Key{Tenant: run.DefaultTenant, Project: run.DefaultProject, Name: name})
	require.NoError(t, err)
	return r
}

func TestStepKeys(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)

	t.Run("MeetOverTwoPipelines", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		large := strings.Repeat("x", 6000)
		script := ran.add("ran") + "; echo v=" + large + " >> \"$BELAY_OUTPUT\"; while ! test -e '" + ran.path + ".go'; do sleep 0.1; done"
		outputs := "        outputs: [v]"
		first := env.Run(t, keyedStep("one", key, "", script, outputs))
		ran.await(t, 1)
		second := env.Run(t, keyedStep("two", key, "", script, outputs,
			`      - {name: b, env: {V: "${{ steps.a.outputs.v }}"}, run: 'test ${#V} = 6000'}`))
		doc := second.WaitFor("it says what it waits for", func(d *run.Document) bool {
			return len(d.Stages) == 1 && len(d.Stages[0].Steps) > 0 && d.Stages[0].Steps[0].WaitingFor != nil &&
				d.Stages[0].Steps[0].WaitingFor.Kind == "claim" && d.Stages[0].Steps[0].WaitingFor.Holder != ""
		})
		require.Contains(t, doc.Stages[0].Steps[0].WaitingFor.Holder, first.ID)
		touch(t, ran.path+".go")
		require.Equal(t, run.Succeeded, first.Wait().Status)
		doc = second.Wait()
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, run.Duplicate, doc.Stages[0].Steps[0].Status)
		require.Equal(t, first.ID, doc.Stages[0].Steps[0].DuplicateOf)
		require.Len(t, ran.lines(t), 1)
	})

	t.Run("RunWhereTheOneThatWasWaitedForFailed", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		first := env.Run(t, keyedStep("one", key, "", ran.add("first")+"; sleep 3; exit 1"))
		ran.await(t, 1)
		second := env.Run(t, keyedStep("two", key, "", ran.add("second")))
		require.Equal(t, run.Failed, first.Wait().Status)
		require.Equal(t, run.Succeeded, second.Wait().Status)
		require.Equal(t, []string{"first", "second"}, ran.lines(t))
	})

	t.Run("RunAgainWhereThatIsMeant", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		file := keyedStep("one", key, "", ran.add("ran"))
		require.Equal(t, run.Succeeded, env.Run(t, file).Wait().Status)
		doc := env.Run(t, file).Wait()
		require.Equal(t, run.Duplicate, doc.Stages[0].Steps[0].Status)
		doc = env.Run(t, file, func(in *workflows.PipelineInput) { in.Rerun = true }).Wait()
		require.Equal(t, run.Succeeded, doc.Stages[0].Steps[0].Status)
		require.Len(t, ran.lines(t), 2)
	})

	t.Run("FailWhatIsRejected", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		first := env.Run(t, keyedStep("one", key, "", ran.add("first")+"; sleep 20"))
		ran.await(t, 1)
		doc := env.Run(t, keyedStep("two", key, "on_duplicate: reject", ran.add("second"))).Wait()
		require.Equal(t, run.Failed, doc.Status)
		require.Contains(t, doc.Cause.Message, first.ID)
		first.Cancel("seen enough")
		require.Equal(t, run.Cancelled, first.Wait().Status)
		require.Equal(t, run.Succeeded, env.Run(t, keyedStep("three", key, "", ran.add("third"))).Wait().Status)
	})

	t.Run("NeverBlockTheirOwnRetries", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		r := env.Run(t, keyedStep("one", key, "", ran.add(`"$BELAY_IDEMPOTENCY_KEY/$BELAY_FENCING_TOKEN"`)+`; test "$BELAY_ATTEMPT" = 3`,
			"        retry: {max_attempts: 5, initial_interval: 100ms}"))
		require.Equal(t, run.Succeeded, r.Wait().Status)
		lines := ran.lines(t)
		require.Len(t, lines, 3)
		last := int64(0)
		for _, line := range lines {
			idempotency, text, _ := strings.Cut(line, "/")
			token, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			require.Greater(t, token, last, "the token grows with every claim")
			last = token
			require.True(t, strings.HasPrefix(lines[0], idempotency+"/"), "the key is the same over attempts")
		}
	})

	t.Run("DifferInOneRun", func(t *testing.T) {
		t.Parallel()
		key, ran := uuid.NewString(), newCounter(t)
		doc := env.Run(t, keyedStep("one", "${{ inputs.a }}", "", ran.add("a"),
			`      - {name: b, dedup: {key: "${{ inputs.b }}"}, run: "`+ran.add("b")+`"}`,
			`inputs: {a: {type: string, default: "`+key+`"}, b: {type: string, default: "`+key+`"}}`)).Wait()
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerInvalid, doc.Cause.Trigger)
		require.Equal(t, []string{"a"}, ran.lines(t))
	})

	t.Run("HaveAnIdempotencyKeyWithoutOneToo", func(t *testing.T) {
		t.Parallel()
		r := env.Run(t, `
version: 1
name: unkeyed
stages: [{name: s, steps: [{name: a, run: 'test -n "$BELAY_IDEMPOTENCY_KEY" -a -z "$BELAY_FENCING_TOKEN"'}]}]
`)
		require.Equal(t, run.Succeeded, r.Wait().Status)
	})
}

// TestClaimOfAKilledWorker: the run whose worker was lost ends, and another run
// takes its key over.
func TestClaimOfAKilledWorker(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{}) // the worker would take stages of other tests, too
	c := claims(t, env)
	key, ran := uuid.NewString(), newCounter(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "killed-once")
	r := env.Run(t, keyedStep("one", key, "", ran.add("first")+"; sleep 300", "@killed-once"))
	ran.await(t, 1)
	before := stepRecord(t, c, key)
	w.Kill()
	second := env.Run(t, keyedStep("two", key, "", ran.add("second")))
	require.Equal(t, run.Succeeded, second.Wait().Status)
	require.Equal(t, run.Failed, r.Wait().Status)
	require.Equal(t, []string{"first", "second"}, ran.lines(t))
	require.Greater(t, stepRecord(t, c, key).Token, before.Token)
}

// TestOwnerThatWakesUpAfterATakeover: its claim is another's, so it is refused.
func TestOwnerThatWakesUpAfterATakeover(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{}) // the worker would take stages of other tests, too
	c := claims(t, env)
	key, ran := uuid.NewString(), newCounter(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "stopped-once")
	r := env.Run(t, keyedStep("one", key, "", ran.add("first")+"; sleep 300", "@stopped-once"))
	ran.await(t, 1)
	first := stepRecord(t, c, key)
	w.Signal(syscall.SIGSTOP)
	second := env.Run(t, keyedStep("two", key, "", ran.add("second")))
	require.Equal(t, run.Succeeded, second.Wait().Status)
	w.Signal(syscall.SIGCONT)
	require.Equal(t, run.Failed, r.Wait().Status)
	require.ErrorIs(t, c.Renew(t.Context(), *first, time.Minute), dedup.ErrNotOwner)
	require.ErrorIs(t, c.Settle(t.Context(), dedup.Settlement{
		Held: dedup.Held{Key: first.Key, Owner: first.Owner, Token: first.Token}, State: dedup.Completed, Window: time.Hour,
	}), dedup.ErrNotOwner)
	require.Equal(t, second.RunID, stepRecord(t, c, key).Owner.RunKey)
	require.Equal(t, []string{"first", "second"}, ran.lines(t))
}

// TestRedisAwayInMidRun: what runs goes on and is settled when Redis is back;
// what is to begin waits; nothing is left without a live owner.
func TestRedisAwayInMidRun(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	redis := redistest.Start(t)
	env := e2e.Start(t, e2e.Options{RedisURL: redis.URL})
	c := claims(t, env)
	name, key, ran := pipelineName(), uuid.NewString(), newCounter(t)
	text := strings.Replace(keyedStep(name, key, "", ran.add("ran")+"; while ! test -e '"+ran.path+".go'; do sleep 0.1; done"),
		"stages:", "dedup: {key: k, window: 10m}\nstages:", 1)
	r := raw(t, env, text)
	ran.await(t, 1)
	redis.Stop(t)
	low := raw(t, env, strings.Replace(once(name+"-low", "window: 10m", "echo low"), "dedup:", "risk: low\ndedup:", 1)).Wait()
	require.Equal(t, run.Succeeded, low.Status)
	require.NotEmpty(t, low.Notes, "it says that it went unchecked")
	short := raw(t, env, once(name+"-short", "window: 10m, claim_timeout: 2s", "echo short")).Wait()
	require.Equal(t, run.Failed, short.Status)
	require.Equal(t, run.TriggerDependencyUnavailable, short.Cause.Trigger)
	high := raw(t, env, once(name+"-high", "window: 10m", "echo high"))
	touch(t, ran.path+".go")
	redis.Restart(t) // empty
	require.Equal(t, run.Succeeded, r.Wait().Status)
	require.Equal(t, run.Succeeded, high.Wait().Status)
	require.Equal(t, dedup.Completed, record(t, c, name, "k").State)
	require.Equal(t, dedup.Completed, stepRecord(t, c, key).State)
	again := raw(t, env, text).Wait()
	require.Equal(t, run.Duplicate, again.Status)
	require.Len(t, ran.lines(t), 1)
	for held, err := range c.Running(t.Context()) {
		require.NoError(t, err)
		require.Fail(t, "a key without a live run", "%+v", held)
	}
}

// TestRedisFrozenWhenADuplicateIsMet: a starter that could not write its entry then
// writes it in the end.
func TestRedisFrozenWhenADuplicateIsMet(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	redis := redistest.Start(t)
	env := e2e.Start(t, e2e.Options{RedisURL: redis.URL})
	name, ran := pipelineName(), newCounter(t)
	file := write(t, once(name, "window: 10m", ran.add("ran")+"; while ! test -e '"+ran.path+".go'; do sleep 0.1; done"))
	first := make(chan e2e.Result, 1)
	go func() { first <- env.CLI(t, "run", file) }()
	ran.await(t, 1)
	redis.Pause(t)
	second := make(chan e2e.Result, 1)
	attached := &seen{words: "this is a duplicate of it", there: make(chan struct{})}
	go func() { second <- env.CLITo(t, attached, "run", file) }()
	select {
	case <-attached.there:
	case <-time.After(e2e.Patience):
		require.Fail(t, "it attached to nothing")
	}
	require.Empty(t, second)
	redis.Resume(t)
	touch(t, ran.path+".go")
	require.Equal(t, 0, (<-first).Code)
	got := <-second
	require.Equal(t, 0, got.Code, got.Stderr)
	require.NotContains(t, got.Stderr, "the audit")
	require.Len(t, audited(t, env, name), 1)
}

// TestRedisEmptyInMidRun: claims of runs that go on are put back, and nothing
// runs beside them.
func TestRedisEmptyInMidRun(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	redis := redistest.Start(t)
	env := e2e.Start(t, e2e.Options{RedisURL: redis.URL})
	c := claims(t, env)
	name, ran := pipelineName(), newCounter(t)
	text := once(name, "window: 10m", ran.add("ran")+"; while ! test -e '"+ran.path+".go'; do sleep 0.1; done")
	first := raw(t, env, text)
	ran.await(t, 1)
	held := record(t, c, name, "one")
	redis.Stop(t)
	redis.Restart(t)
	second := raw(t, env, text, func(in *workflows.PipelineInput) { in.Sender = "another" })
	second.WaitFor("it waits for the first", func(d *run.Document) bool { return d.WaitingFor != nil && d.WaitingFor.Kind == "claim" })
	require.Equal(t, held.Token, record(t, c, name, "one").Token, "the claim is as it was")
	touch(t, ran.path+".go")
	require.Equal(t, run.Succeeded, first.Wait().Status)
	require.Equal(t, run.Duplicate, second.Wait().Status)
	redis.Stop(t)
	redis.Restart(t)
	require.Equal(t, run.Duplicate, raw(t, env, text).Wait().Status, "Temporal knows what completed inside the window")
	redis.Stop(t)
	redis.Restart(t)
	forgot := time.Now().Add(-5 * time.Minute)
	require.NoError(t, redis.Client(t).Set(t.Context(), "belay:epoch", forgot.UnixMicro(), 0).Err())
	require.Equal(t, run.Duplicate, raw(t, env, text).Wait().Status, "also where Redis forgot minutes ago, and nobody has asked since")
	require.Len(t, ran.lines(t), 1)
}
