package activities

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/task"
)

// once is a Submitter that answers alike, and keeps what it was given.
type once struct {
	result task.Result
	given  []task.Task
}

func (o *once) Submit(_ context.Context, t task.Task) (task.Result, error) {
	o.given = append(o.given, t)
	return o.result, nil
}

// keyedStep runs a light step with a key, whose claim a book decides.
func keyedStep(t *testing.T, b *book, to *once, risk spec.Risk) (*StepResult, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	l := NewLight(LightConfig{Executor: to, Claims: NewClaims(ClaimsConfig{Claims: b, Audit: new(entries)})})
	env.RegisterActivity(l)
	value, err := env.ExecuteActivity(l.RunLight, LightInput{
		Node: "s/a", Uses: "http", With: map[string]any{"url": "http://a"}, Timeout: time.Second, To: spec.ToLight, Outputs: []string{"status"},
		Origin: &task.Origin{Tenant: "shop", Project: "web", Run: "shop/web/r", Node: "s/a"},
		Claim: &Claiming{
			Key: dedup.Key{Tenant: "shop", Project: "web", Name: "k"}, Owner: dedup.Owner{RunKey: "shop/web/r", Node: "s/a"},
			Pipeline: "deploy", OnDuplicate: spec.OnDuplicateAttach, Risk: risk, Window: time.Hour, Timeout: time.Second,
		},
	})
	if err != nil {
		return nil, err
	}
	var r StepResult
	return &r, value.Get(&r)
}

// granted is the claim of a step's key.
func granted(owner string) dedup.Record {
	return dedup.Record{
		Key: dedup.Key{Tenant: "shop", Project: "web", Name: "k"}, State: dedup.Running, Token: 7,
		Owner: dedup.Owner{RunKey: owner, Node: "s/a", WorkflowID: owner, RunID: "run-1"},
	}
}

func TestALightStepSettlesTheKeyThatItClaimed(t *testing.T) {
	t.Parallel()
	b := &book{verdicts: []dedup.Verdict{{Decision: dedup.Granted, Record: granted("shop/web/r")}}}
	to := &once{result: task.Result{Status: task.Succeeded, Output: task.Output{"status": 200}}}
	r, err := keyedStep(t, b, to, spec.RiskHigh)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"status": "200"}, r.Outputs)
	require.EqualValues(t, 7, r.Claim.Token)
	require.Len(t, b.settled, 1)
	require.Equal(t, dedup.Completed, b.settled[0].State)
	require.Equal(t, map[string]string{"status": "200"}, b.settled[0].Result.Outputs)
	require.Equal(t, dedup.IdempotencyKey(granted("shop/web/r")), to.given[0].Origin.IdempotencyKey)
	require.Empty(t, to.given[0].Key, "it is claimed already")
}

func TestALightStepThatFailsSettlesNothing(t *testing.T) {
	t.Parallel()
	b := &book{verdicts: []dedup.Verdict{{Decision: dedup.Granted, Record: granted("shop/web/r")}}}
	_, err := keyedStep(t, b, &once{result: task.Result{Status: task.Failed, Error: task.Faultf("no answer")}}, spec.RiskHigh)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(run.TriggerDependencyUnavailable), app.Type())
	require.Empty(t, b.settled, "there may be another attempt")
}

func TestALightStepTakesOverWhatAnotherDid(t *testing.T) {
	t.Parallel()
	done := granted("shop/web/other")
	done.State, done.Result = dedup.Completed, dedup.Result{Status: run.Succeeded, Outputs: map[string]string{"status": "201", "more": "x"}}
	to := &once{}
	r, err := keyedStep(t, &book{verdicts: []dedup.Verdict{{Decision: dedup.Duplicate, Record: done}}}, to, spec.RiskHigh)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"status": "201"}, r.Outputs)
	require.Equal(t, "shop/web/other", r.DuplicateOf.RunKey)
	require.Empty(t, to.given)
}

func TestALightStepAtLowRiskRunsWithoutRedis(t *testing.T) {
	t.Parallel()
	away := []error{dedup.ErrUnavailable, dedup.ErrUnavailable, dedup.ErrUnavailable, dedup.ErrUnavailable, dedup.ErrUnavailable, dedup.ErrUnavailable}
	to := &once{result: task.Result{Status: task.Succeeded, Output: task.Output{"status": 200}}}
	r, err := keyedStep(t, &book{errs: away}, to, spec.RiskLow)
	require.NoError(t, err)
	require.Len(t, to.given, 1)
	require.NotEmpty(t, r.Notes)
	require.Nil(t, r.Claim)
}

func TestALightStepSaysThatItsFallbackStoodIn(t *testing.T) {
	t.Parallel()
	b := &book{verdicts: []dedup.Verdict{{Decision: dedup.Granted, Record: granted("shop/web/r")}}}
	r, err := keyedStep(t, b, &once{result: task.Result{Status: task.Succeeded, Output: task.Output{task.FallbackOutput: true}}}, spec.RiskHigh)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"status": ""}, r.Outputs)
	require.Contains(t, r.Notes[0], "fallback")
}

// What its executor says of it stays, at the first attempt too.
func TestALightTaskThatWasSentTwiceIsRetried(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		l := NewLight(LightConfig{Executor: &once{result: task.Result{Status: task.Succeeded, Retried: again}}})
		env.RegisterActivity(l)
		value, err := env.ExecuteActivity(l.RunTask, task.Task{ID: "a", Type: "http"})
		require.NoError(t, err)
		var r task.Result
		require.NoError(t, value.Get(&r))
		require.Equal(t, again, r.Retried)
	}
}
