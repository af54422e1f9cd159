package runs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/redistest"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

// lostHosts is a run whose stage lost two hosts, one after the other.
func lostHosts() *run.Document {
	leaked := func(kind, name string) run.Resource {
		return run.Resource{Kind: kind, Name: name, State: run.ResourceLeaked, Attempts: 1, Error: "host does not answer"}
	}
	return &run.Document{RunKey: "k", Status: run.Failed, Stages: []run.Stage{{
		Node: "s", Name: "s", Status: run.Failed,
		Resources: []run.Resource{leaked("workspace", "h1"), leaked("container", "db"), leaked("workspace", "h2")},
		Steps: []run.Step{{Node: "s/a", Resources: []run.Resource{
			leaked("process", "a"), leaked("temp_dir", "tmp"), leaked("temp_dir", "own"), leaked("lock", "l"),
		}}},
	}}}
}

func given(node, kind, name, host string, attempt int, state run.ResourceState) resource.Entry {
	return resource.Entry{
		Owner: resource.Owner{RunKey: "k", WorkflowID: "id", Node: node, Attempt: attempt},
		Kind:  kind, Name: name, Host: host, State: state, Attempts: 3, Since: time.Unix(1, 0),
	}
}

func leaks(d *run.Document) []string {
	var out []string
	for _, list := range [][]run.Resource{d.Stages[0].Resources, d.Stages[0].Steps[0].Resources} {
		for _, r := range list {
			if r.State == run.ResourceLeaked {
				out = append(out, r.Kind+" "+r.Name)
			}
		}
	}
	return out
}

func TestSettle(t *testing.T) {
	t.Parallel()

	t.Run("WhatALostHostHadOfStepsAndServicesGoesWithItsWorkspaces", func(t *testing.T) {
		t.Parallel()
		d := lostHosts()
		one := given("s", "workspace", "h1", "h1", 0, run.ResourceReleased)
		runs.Settle(d, []resource.Entry{one, given("s", "workspace", "h2", "h2", 0, run.ResourceLeaked)})
		require.Equal(t, []string{"container db", "workspace h2", "process a", "temp_dir tmp", "temp_dir own", "lock l"}, leaks(d))
		d = lostHosts()
		runs.Settle(d, []resource.Entry{one, given("s", "workspace", "h2", "h2", 0, run.ResourceReleased)})
		require.Equal(t, []string{"temp_dir own", "lock l"}, leaks(d))
		require.Equal(t, run.Resource{Kind: "workspace", Name: "h1", State: run.ResourceReleased, Attempts: 3}, d.Stages[0].Resources[0])
	})

	t.Run("AllAttemptsOfAStepCount", func(t *testing.T) {
		t.Parallel()
		d := lostHosts()
		runs.Settle(d, []resource.Entry{
			given("s/a", "lock", "l", "h1", 1, run.ResourceLeaked), given("s/a", "lock", "l", "h2", 1, run.ResourceReleased),
			given("s/a", "temp_dir", "own", "h1", 1, run.ResourceReleased), given("s/b", "process", "a", "h1", 1, run.ResourceReleased),
		})
		require.Equal(t, []string{"workspace h1", "container db", "workspace h2", "process a", "temp_dir tmp", "lock l"}, leaks(d))
	})
}

func TestReadsRunsTogetherWithTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := lostHosts()
	doc.Stages[0].WorkflowID = ""
	b.pipeline("default/default/demo/r/1", doc)
	rdb := redistest.Start(t).Client(t)
	ledger := resource.NewLedger(rdb)
	for _, host := range []string{"h1", "h2"} {
		e := given("s", "workspace", host, host, 0, run.ResourceReleased)
		e.RunKey = runID
		require.NoError(t, ledger.Note(t.Context(), e))
	}
	ref := runs.Ref{ID: "default/default/demo/r/1", RunID: runID}
	read := func(c *runs.Client) []string {
		snap, err := c.Reader(ref).Read(t.Context())
		require.NoError(t, err)
		return leaks(snap.Document)
	}
	require.Len(t, read(b.client), 7)
	require.Equal(t, []string{"temp_dir own", "lock l"}, read(b.client.WithLedger(func() (*resource.Ledger, error) { return ledger, nil })))
	nowhere := redistest.Start(t)
	gone := resource.NewLedger(nowhere.Client(t))
	nowhere.Stop(t)
	require.Len(t, read(b.client.WithLedger(func() (*resource.Ledger, error) { return gone, nil })), 7, "without Redis it stands as it is")
}
