package activities_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
	"belay.run/internal/spec"
)

// keyed gives h claims over a Redis that has lost nothing, and returns a step
// with a key.
func (h *host) keyed(t *testing.T, script string) activities.StepInput {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	require.NoError(t, rdb.Set(t.Context(), "belay:epoch", 1, 0).Err())
	claims, err := dedup.Open(rdb, dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	h.steps.Claims = activities.NewClaims(activities.ClaimsConfig{Claims: claims})
	return h.input(script, func(in *activities.StepInput) {
		in.Step.Outputs = []string{"digest"}
		in.Claim = &activities.Claiming{
			Key:         dedup.Key{Tenant: "t", Project: "p", Name: "deploy"},
			Owner:       dedup.Owner{RunKey: h.owner.RunKey, Node: in.Node, WorkflowID: "w", RunID: "r"},
			OnDuplicate: spec.OnDuplicateAttach, Risk: spec.RiskHigh, ClaimTimeout: time.Minute, Window: time.Hour,
		}
	})
}

// A step that completed and whose end Temporal never heard of is tried again:
// the next attempt finds what the first came to. One that failed runs again.
func TestCompletedStepWithAKeyIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	in := h.keyed(t, `echo did-it; [ "$BELAY_ATTEMPT" = 1 ] && exit 3; echo digest=abc >> "$BELAY_OUTPUT"`)
	_, err := h.run(t, in)
	require.Error(t, err)

	in.Attempts++
	first, err := h.run(t, in)
	require.NoError(t, err)
	require.NotNil(t, first.Claim)

	in.Attempts++
	again, err := h.run(t, in)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"digest": "abc"}, again.Outputs)
	require.Equal(t, []string{"its result was recorded before; it did not run again"}, again.Notes)
	require.Equal(t, 2, strings.Count(h.output(t), "did-it"), "once for each attempt that was due")
}
