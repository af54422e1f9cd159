package runs_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

func TestReadTellsThePlaceInAGroup(t *testing.T) {
	t.Parallel()
	waits := func() *run.WaitingFor { return &run.WaitingFor{Kind: "group", Name: "deploy prod", Position: 7} }
	start := func(t *testing.T, status func() (any, error)) (*bundle, *runs.Reader) {
		t.Helper()
		b := setup(t)
		doc := &run.Document{Pipeline: "p", Tenant: "t", Project: "p", WaitingFor: waits()}
		b.pipeline("t/p/p/r/2", doc)
		b.server.Add(&frontend.Workflow{ID: "t/p/group/deploy%20prod", RunID: "group", Type: activities.GroupWorkflow, Status: status})
		return b, b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID})
	}

	t.Run("AsTheGroupKnowsIt", func(t *testing.T) {
		t.Parallel()
		b, r := start(t, func() (any, error) {
			other := activities.Owner{RunKey: "k1", WorkflowID: "t/p/p/r/1"}
			return workflows.GroupState{
				Holders: []workflows.Member{{Owner: other}},
				Queue:   []workflows.Member{{Owner: activities.Owner{RunKey: "k3"}}, {Owner: activities.Owner{RunKey: runID}}},
			}, nil
		})
		for range 2 {
			snap, err := r.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, &run.WaitingFor{Kind: "group", Name: "deploy prod", Position: 2, Holder: "t/p/p/r/1"}, snap.Document.WaitingFor)
		}
		require.Equal(t, 3, b.server.Asked().Queries, "the group is not asked each time")
	})

	t.Run("AsItWasToldWhereTheGroupDoesNotAnswer", func(t *testing.T) {
		t.Parallel()
		_, r := start(t, func() (any, error) { return nil, errors.New("busy") })
		snap, err := r.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, snap.Document.WaitingFor.Position)
	})
}
