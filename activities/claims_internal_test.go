package activities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// book is a Claimer that answers as it is told.
type book struct {
	verdicts []dedup.Verdict
	errs     []error // come first
	renews   []error
	record   *dedup.Record
	settled  []dedup.Settlement
	claims   []dedup.Claim
}

func (b *book) Claim(_ context.Context, c dedup.Claim) (dedup.Verdict, error) {
	b.claims = append(b.claims, c)
	if len(b.errs) > 0 {
		err := b.errs[0]
		b.errs = b.errs[1:]
		return dedup.Verdict{}, err
	}
	v := b.verdicts[0]
	if len(b.verdicts) > 1 {
		b.verdicts = b.verdicts[1:]
	}
	return v, nil
}

func (b *book) Renew(context.Context, dedup.Record, time.Duration) error {
	err := b.renews[0]
	b.renews = b.renews[1:]
	return err
}

func (b *book) Settle(_ context.Context, s dedup.Settlement) error {
	b.settled = append(b.settled, s)
	return nil
}

func (b *book) Lookup(context.Context, dedup.Key) (*dedup.Record, error) { return b.record, nil }

func (b *book) Last(context.Context, dedup.Key) (*dedup.Record, error) { return b.record, nil }

func (b *book) Recovering(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

func (b *book) Now(context.Context) (time.Time, error) { return time.Now(), nil }

// entries is an Auditor.
type entries []audit.Entry

func (e *entries) Write(_ context.Context, entry audit.Entry) error {
	*e = append(*e, entry)
	return nil
}

// forgetful is a Temporal that knows of no run.
type forgetful struct {
	workflowservice.WorkflowServiceClient
}

// connection is a client of a Temporal.
type connection struct {
	client.Client

	to workflowservice.WorkflowServiceClient
}

func (c connection) WorkflowService() workflowservice.WorkflowServiceClient { return c.to }

func (forgetful) DescribeWorkflowExecution(
	context.Context, *workflowservice.DescribeWorkflowExecutionRequest, ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewNotFound("no such run")
}

func (forgetful) ListWorkflowExecutions(
	context.Context, *workflowservice.ListWorkflowExecutionsRequest, ...grpc.CallOption,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

func claimsOver(b *book) (*Claims, *entries) {
	log := &entries{}
	return NewClaims(ClaimsConfig{Claims: b, Audit: log}), log
}

func claimingStep(edit ...func(*Claiming)) *Claiming {
	in := &Claiming{
		Key: dedup.Key{Name: "k"}, Owner: dedup.Owner{RunKey: "mine", Node: "s/a"}, OnDuplicate: spec.OnDuplicateAttach,
		Risk: spec.RiskHigh, ClaimTimeout: time.Minute,
	}
	for _, f := range edit {
		f(in)
	}
	return in
}

var theirs = dedup.Owner{RunKey: "theirs", Node: "s/b", WorkflowID: "w", RunID: "r"}

func verdict(d dedup.Decision, s dedup.State) dedup.Verdict {
	until := time.Now().Add(time.Hour)
	return dedup.Verdict{Decision: d, Record: dedup.Record{Key: dedup.Key{Name: "k"}, State: s, Owner: theirs, Until: &until}}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	reject, replace := spec.OnDuplicateReject, spec.OnDuplicateReplace
	same := verdict(dedup.InFlight, dedup.Running)
	same.Record.Request.ID = "id"
	mismatch := verdict(dedup.Duplicate, dedup.Completed)
	mismatch.Mismatch = true
	for name, tc := range map[string]struct {
		v      dedup.Verdict
		policy string
		want   audit.Decision
	}{
		"granted":                   {verdict(dedup.Granted, dedup.Running), reject, ""},
		"resumed":                   {verdict(dedup.Resumed, dedup.Running), reject, ""},
		"in flight, attach":         {verdict(dedup.InFlight, dedup.Running), "attach", audit.Attached},
		"in flight, reject":         {verdict(dedup.InFlight, dedup.Running), reject, audit.Rejected},
		"in flight, replace":        {verdict(dedup.InFlight, dedup.Running), replace, audit.Replaced},
		"completed, attach":         {verdict(dedup.Duplicate, dedup.Completed), "attach", audit.Answered},
		"completed, reject":         {verdict(dedup.Duplicate, dedup.Completed), reject, audit.Rejected},
		"completed, replace":        {verdict(dedup.Duplicate, dedup.Completed), replace, audit.Answered},
		"late":                      {verdict(dedup.Late, dedup.Failed), "attach", audit.Answered},
		"redelivered, reject":       {verdict(dedup.Redelivered, dedup.Failed), reject, audit.Answered},
		"the same request, reject":  {same, reject, audit.Attached},
		"the same request, replace": {same, replace, audit.Attached},
		"other inputs":              {mismatch, "attach", audit.Mismatch},
	} {
		in := claimingStep(func(c *Claiming) {
			c.Request.ID, c.OnDuplicate, c.OnMismatch = "id", tc.policy, spec.OnDuplicateReject
		})
		require.Equal(t, tc.want, in.answer(&tc.v), name)
	}
}

// A run that replaces others is not answered with the end of one that made way
// for it, however long it takes to claim: it asks at no time that an end could
// be later than. Of three, the newest would be lost else.
func TestReplaceIsNeverTooLate(t *testing.T) {
	t.Parallel()
	asked := time.Now().Add(-time.Minute)
	for policy, want := range map[string]time.Time{
		spec.OnDuplicateAttach: asked, spec.OnDuplicateReject: asked, spec.OnDuplicateReplace: {},
	} {
		b := &book{verdicts: []dedup.Verdict{verdict(dedup.Granted, dedup.Running)}}
		c, _ := claimsOver(b)
		in := claimingStep(func(c *Claiming) { c.OnDuplicate, c.Request.At = policy, asked })
		_, err := c.claimRun(t.Context(), &ClaimRunInput{Claiming: *in})
		require.NoError(t, err)
		require.Len(t, b.claims, 1)
		require.Equal(t, want, b.claims[0].Request.At, policy)
	}
}

func TestClaimStep(t *testing.T) {
	t.Parallel()

	t.Run("WaitsForTheHolderAndThenClaims", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, log := claimsOver(&book{verdicts: []dedup.Verdict{verdict(dedup.InFlight, dedup.Running), verdict(dedup.Granted, dedup.Running)}})
			var holders []string
			grant, err := c.claimStep(t.Context(), claimingStep(), func(ref string) { holders = append(holders, ref) })
			require.NoError(t, err)
			require.NotNil(t, grant.held)
			require.Equal(t, []string{"w@r"}, holders)
			require.Empty(t, *log, "what ran is no duplicate")
		})
	})

	t.Run("TakesWhatAnotherCompletedAndAuditsIt", func(t *testing.T) {
		t.Parallel()
		v := verdict(dedup.Duplicate, dedup.Completed)
		v.Record.Result.Outputs = map[string]string{"v": "1"}
		c, log := claimsOver(&book{verdicts: []dedup.Verdict{v}})
		grant, err := c.claimStep(t.Context(), claimingStep(), nil)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"v": "1"}, grant.result.Outputs)
		require.Equal(t, &theirs, grant.result.DuplicateOf)
		require.Len(t, *log, 1)
		_, err = declared(grant.result.Outputs, []string{"other"})
		require.ErrorContains(t, err, "other")
	})

	t.Run("ReturnsItsOwnResultWithoutRunningAgain", func(t *testing.T) {
		t.Parallel()
		c, log := claimsOver(&book{verdicts: []dedup.Verdict{verdict(dedup.Done, dedup.Completed)}})
		grant, err := c.claimStep(t.Context(), claimingStep(), nil)
		require.NoError(t, err)
		require.Nil(t, grant.result.DuplicateOf)
		require.Empty(t, *log)
	})

	t.Run("AuditsFromWhomItTookOver", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			theirs, mine := verdict(dedup.InFlight, dedup.Running), verdict(dedup.Granted, dedup.Running)
			theirs.Expired, theirs.Record.Token, mine.Record.Owner = true, 7, dedup.Owner{WorkflowID: "mine"}
			b := &book{verdicts: []dedup.Verdict{theirs, mine}}
			c, log := claimsOver(b)
			c.alive = liveness.New(connection{to: forgetful{}}, "")
			grant, err := c.claimStep(t.Context(), claimingStep(), nil)
			require.NoError(t, err)
			require.Equal(t, "mine", grant.held.Owner.WorkflowID)
			require.Equal(t, int64(7), b.claims[1].Dead)
			require.Len(t, *log, 1)
			require.Equal(t, audit.Takeover, (*log)[0].Decision)
			require.Equal(t, "w", (*log)[0].Owner)
		})
	})

	t.Run("RefusesTheKeyOfAnotherNodeOfItsRun", func(t *testing.T) {
		t.Parallel()
		v := verdict(dedup.InFlight, dedup.Running)
		v.Record.Owner.RunKey = "mine"
		c, _ := claimsOver(&book{verdicts: []dedup.Verdict{v}})
		_, err := c.claimStep(t.Context(), claimingStep(), nil)
		var step *stepError
		require.ErrorAs(t, err, &step)
		require.Equal(t, run.TriggerInvalid, step.cause.Trigger)
	})

	t.Run("WaitsForRedisAsLongAsItsRiskAsksFor", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			away := []error{dedup.ErrUnavailable, dedup.ErrUnavailable, dedup.ErrUnavailable}
			granted := []dedup.Verdict{verdict(dedup.Granted, dedup.Running)}
			c, _ := claimsOver(&book{errs: away, verdicts: granted})
			grant, err := c.claimStep(t.Context(), claimingStep(), nil)
			require.NoError(t, err)
			require.NotNil(t, grant.held)

			c, _ = claimsOver(&book{errs: away, verdicts: granted})
			_, err = c.claimStep(t.Context(), claimingStep(func(in *Claiming) { in.ClaimTimeout = 200 * time.Millisecond }), nil)
			var step *stepError
			require.ErrorAs(t, err, &step)
			require.Equal(t, run.TriggerDependencyUnavailable, step.cause.Trigger)

			c, log := claimsOver(&book{errs: away, verdicts: granted})
			grant, err = c.claimStep(t.Context(), claimingStep(func(in *Claiming) { in.Risk = spec.RiskLow }), nil)
			require.NoError(t, err)
			require.Nil(t, grant.held)
			require.NotEmpty(t, grant.note)
			require.Equal(t, audit.Unchecked, (*log)[0].Decision)
		})
	})
}

func TestKeepStopsWhatIsAnothers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("Redis is away")
		b := &book{renews: []error{nil, away, away, away, away, nil, dedup.ErrNotOwner}, record: &dedup.Record{Owner: theirs}}
		c, _ := claimsOver(b)
		began := time.Now()
		var lost run.Cause
		c.keep(t.Context(), dedup.Record{Key: dedup.Key{Name: "k"}}, func(cause run.Cause) { lost = cause })
		require.Equal(t, 7*renewEvery, time.Since(began), "an outage takes nothing away")
		require.Contains(t, lost.Message, "taken over by s/b of w@r")
	})
}

// away is a client whose Temporal cannot be reached.
type away struct{ client.Client }

func (away) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return nil, serviceerror.NewUnavailable("away")
}

// TestEndOfARunThatCannotBeLookedFor holds that the end of a run is not read from
// an execution that a reset may have ended.
func TestEndOfARunThatCannotBeLookedFor(t *testing.T) {
	t.Parallel()
	c := NewClaims(ClaimsConfig{Client: away{}})
	_, err := c.endOf(t.Context(), theirs)
	var unavailable *serviceerror.Unavailable
	require.ErrorAs(t, err, &unavailable)
}

func TestSettleFindsTheClaimOfALostWorker(t *testing.T) {
	t.Parallel()
	in := SettleInput{Claiming: *claimingStep(), Result: dedup.Result{Status: run.Failed}}
	settle := func(record *dedup.Record) []dedup.Settlement {
		b := &book{record: record}
		c, _ := claimsOver(b)
		held, err := c.held(t.Context(), &in)
		require.NoError(t, err)
		if held == nil {
			return nil
		}
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: dedup.Held{Token: held.Token}}))
		return b.settled
	}
	require.Len(t, settle(&dedup.Record{State: dedup.Running, Owner: in.Owner, Token: 7}), 1)
	require.Empty(t, settle(&dedup.Record{State: dedup.Running, Owner: theirs, Token: 8}), "another's is left alone")
	require.Empty(t, settle(&dedup.Record{State: dedup.Completed, Owner: in.Owner}))
	require.Empty(t, settle(nil))
	require.Equal(t, dedup.Completed, settledAs(run.Duplicate))
	require.Equal(t, dedup.Canceled, settledAs(run.Cancelled))
	require.Equal(t, dedup.Failed, settledAs(run.TimedOut))
}
