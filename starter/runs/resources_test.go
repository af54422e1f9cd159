package runs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

func TestHeldByReadsLedgerAndDocumentAsOne(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)
	entry := func(node, kind, name string, attempt int, state run.ResourceState) resource.Entry {
		return resource.Entry{
			Owner: resource.Owner{RunKey: "k", WorkflowID: "id", RunID: "k", Node: node, Attempt: attempt},
			Kind:  kind, Name: name, Scope: resource.ScopeStep, State: state, Since: now, Attempts: 2, Error: "why",
		}
	}
	doc := func(edit func(*run.Document)) *run.Document {
		d := &run.Document{ID: "id", RunID: "k", RunKey: "k", Status: run.Running, Stages: []run.Stage{{
			Node: "s", Status: run.Running, WorkflowID: "id/k/s",
			Resources: []run.Resource{{Kind: "workspace", Name: "h1", State: run.ResourceHeld}},
			Steps: []run.Step{{Node: "s/a", Resources: []run.Resource{
				{Kind: "lock", Name: "deploy", State: run.ResourceReleased},
				{Kind: "process", Name: "a", State: run.ResourceReleased},
			}}},
		}}}
		if edit != nil {
			edit(d)
		}
		return d
	}
	states := func(held []runs.Held) map[string]run.ResourceState {
		out := map[string]run.ResourceState{}
		for _, h := range held {
			out[h.Node+" "+h.Kind] = h.State
		}
		return out
	}
	ended := func(ago time.Duration, stage run.Status) func(*run.Document) {
		return func(d *run.Document) {
			at := now.Add(-ago)
			d.Status, d.EndedAt, d.Stages[0].Status = run.Cancelled, &at, stage
		}
	}

	t.Run("OfARunThatGoesOn", func(t *testing.T) {
		t.Parallel()
		held := runs.HeldBy(doc(nil), []resource.Entry{entry("s/a", "port", "web", 1, run.ResourceHeld)}, now)
		require.Equal(t, map[string]run.ResourceState{
			"s workspace": run.ResourceHeld, "s/a lock": run.ResourceReleased, "s/a process": run.ResourceReleased, "s/a port": run.ResourceHeld,
		}, states(held))
	})

	t.Run("WhatOneOfTheTwoSaysIsReleasedIs", func(t *testing.T) {
		t.Parallel()
		held := runs.HeldBy(doc(nil), []resource.Entry{
			entry("s/a", "lock", "deploy", 1, run.ResourceReleased), entry("s/a", "lock", "deploy", 2, run.ResourceHeld),
		}, now)
		for _, h := range held {
			if h.Kind == "lock" {
				require.Equal(t, run.ResourceReleased, h.State, "attempt %d", h.Attempt)
				require.NotZero(t, h.Attempt, "the document's is the same as the ledger's")
			}
		}
		require.Len(t, held, 4)
	})

	t.Run("WhatTheDocumentSaysHasLeakedHasUntilItIsReleased", func(t *testing.T) {
		t.Parallel()
		leaked := doc(func(d *run.Document) { d.Stages[0].Steps[0].Resources[0].State = run.ResourceLeaked })
		state := func(ledger run.ResourceState) run.ResourceState {
			return states(runs.HeldBy(leaked, []resource.Entry{entry("s/a", "lock", "deploy", 1, ledger)}, now))["s/a lock"]
		}
		require.Equal(t, run.ResourceLeaked, state(run.ResourceReleasing))
		require.Equal(t, run.ResourceReleased, state(run.ResourceReleased))
	})

	t.Run("WhatARunHasNotGivenBackLongAfterItsEndIsLeaked", func(t *testing.T) {
		t.Parallel()
		port := []resource.Entry{entry("s/a", "port", "web", 1, run.ResourceHeld)}
		require.Equal(t, run.ResourceLeaked, states(runs.HeldBy(doc(ended(time.Hour, run.Cancelled)), port, now))["s/a port"])
		require.Equal(t, run.ResourceReleased, states(runs.HeldBy(doc(ended(time.Hour, run.Cancelled)), port, now))["s/a lock"])
		require.Equal(t, run.ResourceHeld, states(runs.HeldBy(doc(ended(time.Second, run.Cancelled)), port, now))["s/a port"],
			"the janitor is on its way")
		require.Equal(t, run.ResourceHeld, states(runs.HeldBy(doc(ended(time.Hour, run.Running)), port, now))["s/a port"],
			"a stage of it still unwinds")
	})
}
