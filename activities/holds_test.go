package activities_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// takeInput is what a stage holds.
func (h *host) takeInput(list ...spec.Resource) activities.StepInput {
	in := h.input("", holding(list...))
	in.Node, in.Step.Name, in.Step.Run = h.owner.Node, h.owner.Node, nil
	return in
}

// take takes what a stage holds.
func (h *host) take(t *testing.T, in activities.StepInput) activities.StepResult {
	t.Helper()
	got, err := h.env.ExecuteActivity(h.steps.TakeResources, in)
	require.NoError(t, err)
	var res activities.StepResult
	require.NoError(t, got.Get(&res))
	return res
}

// give gives back what the stage itself holds.
func (h *host) give(t *testing.T) []string {
	t.Helper()
	got, err := h.env.ExecuteActivity(h.resources.ReleaseResources, activities.ReleaseInput{RunKey: "k1", Node: h.owner.Node, Stage: true})
	require.NoError(t, err)
	var res activities.ReleaseResult
	require.NoError(t, got.Get(&res))
	var out []string
	for _, e := range res.Entries {
		require.Equal(t, resource.ScopeStage, e.Scope)
		out = append(out, fmt.Sprintf("%s %s %s", e.Kind, e.Name, e.State))
	}
	return out
}

// aside is the host for an activity beside others: an environment of tests takes one
// at a time.
func (h *host) aside() *host {
	var suite testsuite.WorkflowTestSuite
	other := *h
	other.env = suite.NewTestActivityEnvironment()
	other.env.SetTestTimeout(30 * time.Second)
	other.env.RegisterActivity(h.steps)
	other.env.RegisterActivity(h.resources)
	return &other
}

func under(number int) func(*activities.StepInput) {
	return func(in *activities.StepInput) { in.Held = number }
}

func TestStageHoldsWhatItsStepsSee(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	window := custom("window", `echo "acquire $BELAY_PORT_WEB $TOKEN" >> "$TRACE"; echo id=w-42`,
		`echo "release $BELAY_RESOURCE_ID $BELAY_PORT_WEB $TOKEN" >> "$TRACE"; test -z "$CLOUD"`)
	window.Secrets = []string{"TOKEN"}
	in := h.takeInput(
		spec.Resource{Kind: resource.KindTempDir, Name: "scratch"},
		spec.Resource{Kind: resource.KindPort, Name: "web"},
		window,
		custom("other", `test -z "$TOKEN"`, "true"),
		spec.Resource{Kind: resource.KindCredential, Name: "CLOUD", Provider: "vault"},
	)
	in.Env, in.Step.Secrets = map[string]string{"TRACE": trace}, []string{"TOKEN"}
	res := h.take(t, in)
	require.Equal(t, []string{
		"temp_dir scratch held", "port web held", "custom window held", "custom other held", "credential CLOUD held",
	}, held(res))

	for _, step := range []string{"one", "two"} {
		res, err := h.run(t, h.input(`
test -z "$TOKEN" && test "$BELAY_RESOURCE_ID_WINDOW" = w-42 && test "$CLOUD" = issued-s3cr3t && echo "with $CLOUD"
echo x >> "$BELAY_DIR_SCRATCH/file"; echo "run $BELAY_PORT_WEB $BELAY_PORT_OWN" >> "$TRACE"`,
			holding(spec.Resource{Kind: resource.KindPort, Name: "own"}), under(res.Attempt),
			func(in *activities.StepInput) {
				in.Env, in.Node, in.Step.Name = map[string]string{"TRACE": trace}, "build/"+step, step
			}))
		require.NoError(t, err)
		require.Equal(t, []string{"port own released"}, held(res), "what is the stage's stays")
	}
	require.Equal(t, []string{
		"credential CLOUD released", "custom other released", "custom window released", "port web released", "temp_dir scratch released",
	}, h.give(t))
	require.Empty(t, h.give(t), "nothing is left to give back")
	noRecords(t, h)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 4)
	port := strings.Fields(lines[0])[1]
	require.Equal(t, "acquire "+port+" s3cr3t-value", lines[0])
	require.Contains(t, lines[1], "run "+port)
	require.Contains(t, lines[2], "run "+port)
	require.Equal(t, "release w-42 "+port+" s3cr3t-value", lines[3])

	_, err = h.run(t, h.input("exit 0", under(res.Attempt)))
	requireTrigger(t, run.TriggerWorkerLost, err, false)
}

func TestStageThatCannotHaveAllHoldsNothing(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	in := h.takeInput(
		spec.Resource{Kind: resource.KindTempDir, Name: "scratch"},
		custom("first", "true", `echo released >> "$TRACE"`), custom("second", "exit 7", `echo never >> "$TRACE"`),
	)
	in.Env = map[string]string{"TRACE": trace}
	_, err := h.env.ExecuteActivity(h.steps.TakeResources, in)
	requireTrigger(t, run.TriggerExitCode, err, true)
	require.ErrorContains(t, err, "acquiring custom second: acquire: exit code 7")
	noRecords(t, h)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "released\n", string(text))
}

// frail is a lock that is lost when it is told so.
type frail struct{ lose chan struct{} }

func (f *frail) Name() string { return resource.KindLock }

func (f *frail) Acquire(_ context.Context, e *resource.Entry, _ resource.Ask) (resource.Grant, error) {
	e.ID = "7"
	return resource.Grant{Env: map[string]string{"BELAY_LOCK_TOKEN_L": "7"}}, nil
}

func (f *frail) Release(context.Context, *resource.Entry) error { return nil }

func (f *frail) Keep(ctx context.Context, e resource.Entry, lost func(error)) {
	select {
	case <-ctx.Done():
	case <-f.lose:
		lost(fmt.Errorf("the lock %s is another's", e.Name))
	}
}

func TestStageThatLosesWhatItHoldsHasItsStepsEnded(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	lock := &frail{lose: make(chan struct{})}
	h.resources.Kinds = append(h.resources.Kinds, lock)
	number := h.take(t, h.takeInput(spec.Resource{Kind: resource.KindLock, Name: "l"})).Attempt
	kept, keeping := make(chan error, 1), h.aside()
	go func() {
		_, err := keeping.env.ExecuteActivity(h.steps.KeepResources, activities.KeepInput{Owner: h.owner, Number: number})
		kept <- err
	}()
	ready := filepath.Join(t.TempDir(), "ready")
	ran, running := make(chan error, 1), h.aside()
	go func() {
		_, err := running.env.ExecuteActivity(running.steps.RunStep,
			running.input(`echo "$BELAY_LOCK_TOKEN_L" > "`+ready+`"; sleep 600`, under(number)))
		ran <- err
	}()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(ready)
		return err == nil && string(text) == "7\n"
	}, 30*time.Second, 10*time.Millisecond)
	close(lock.lose)
	err := <-ran
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.ErrorContains(t, err, "the lock l is another's")
	requireTrigger(t, run.TriggerDependencyUnavailable, <-kept, false)
	_, err = h.run(t, h.input("exit 0", under(number)))
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.Equal(t, []string{"lock l released"}, h.give(t))
	noRecords(t, h)
}

// TestKeepEndsWhenAllIsGivenBack: also where nobody cancels it.
func TestKeepEndsWhenAllIsGivenBack(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	lock := &frail{lose: make(chan struct{})}
	h.resources.Kinds = append(h.resources.Kinds, lock)
	in := h.takeInput(spec.Resource{Kind: resource.KindLock, Name: "l"})
	first := h.take(t, in).Attempt
	in.Attempts = first
	second := h.take(t, in).Attempt
	require.Equal(t, first+1, second)
	_, err := h.env.ExecuteActivity(h.steps.KeepResources, activities.KeepInput{Owner: h.owner, Number: first})
	requireTrigger(t, run.TriggerWorkerLost, err, false)
	kept, keeping := make(chan error, 1), h.aside()
	go func() {
		_, err := keeping.env.ExecuteActivity(h.steps.KeepResources, activities.KeepInput{Owner: h.owner, Number: second})
		kept <- err
	}()
	_, err = h.env.ExecuteActivity(h.steps.Release, h.owner)
	require.NoError(t, err)
	if err := <-kept; err != nil { // it came after that
		requireTrigger(t, run.TriggerWorkerLost, err, false)
	}
	noRecords(t, h)
}
