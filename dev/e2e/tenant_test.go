package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/workflows"
)

func ofTenant(tenant string) func(*workflows.PipelineInput) {
	return func(in *workflows.PipelineInput) { in.Tenant = tenant }
}

// oneStep is a file of one step.
func oneStep(script string) string {
	return "version: 1\nname: one\nstages: [{name: s, steps: [{name: a, run: '" + script + "'}]}]\n"
}

func ended(t *testing.T, rs []*e2e.Run) int {
	t.Helper()
	n := 0
	for _, r := range rs {
		if r.Document().Status.Terminal() {
			n++
		}
	}
	return n
}

func waitsForItsTurn(d *run.Document) bool {
	return d.WaitingFor != nil && d.WaitingFor.Kind == run.WaitsQuota && d.WaitingFor.Position > 0
}

// queued reports whether a run's only step has nowhere to run yet: polls that were
// open when a host filled up may have brought its stage there.
func queued(d *run.Document) bool {
	if len(d.Stages) == 0 || d.Stages[0].Status != run.Running {
		return false
	}
	w := d.Stages[0].WaitingFor
	if w == nil && len(d.Stages[0].Steps) > 0 {
		w = d.Stages[0].Steps[0].WaitingFor
	}
	return w != nil && (w.Kind == "host" || w.Kind == "process_slot")
}

// TestTenantsTakeTurns: a tenant with many runs that wait for a host does not keep
// another one's only run waiting behind them all.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	const many = 25
	env := e2e.Start(t, e2e.Options{Settings: []string{"--max-stages=1", "--max-processes=1"}})
	gate := filepath.Join(t.TempDir(), "open")
	first := env.Run(t, oneStep("echo ready; until [ -e "+gate+" ]; do sleep 0.05; done"), ofTenant("loud"))
	first.WaitLog("s/a", "ready")
	var loud []*e2e.Run
	for range many {
		loud = append(loud, env.Run(t, oneStep("true"), ofTenant("loud")))
	}
	for _, r := range loud {
		r.WaitFor("it waits for a host", queued)
	}
	quiet := env.Run(t, oneStep("true"), ofTenant("quiet"))
	quiet.WaitFor("it waits for a host", queued)

	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	require.Equal(t, run.Succeeded, quiet.Wait().Status)
	require.Less(t, ended(t, loud), many/2, "the other tenant's run came after most of those that waited before it")
	for _, r := range loud {
		require.Equal(t, run.Succeeded, r.Wait().Status)
	}
}

// TestQuotaOfRuns: a tenant has no more runs at once than its quota, in all its
// projects together; others are not held up, and a cancel in the queue leaves it.
func TestQuotaOfRuns(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{Settings: []string{"--max-processes=8", "--tenant-runs=small=2"}})
	gate := filepath.Join(t.TempDir(), "open")
	held := oneStep("echo ready; until [ -e " + gate + " ]; do sleep 0.05; done")
	inProject := func(in *workflows.PipelineInput) { in.Project = "other" }
	holders := []*e2e.Run{env.Run(t, held, ofTenant("small")), env.Run(t, held, ofTenant("small"), inProject)}
	for _, r := range holders {
		r.WaitLog("s/a", "ready")
	}
	late := []*e2e.Run{env.Run(t, held, ofTenant("small")), env.Run(t, held, ofTenant("small"))}
	for _, r := range late {
		doc := r.WaitFor("it waits for its turn", waitsForItsTurn)
		require.Equal(t, "runs of small", doc.WaitingFor.Name)
		require.Equal(t, run.Pending, doc.Stages[0].Status)
	}
	require.Equal(t, run.Succeeded, env.Run(t, oneStep("true"), ofTenant("large")).Wait().Status, "another tenant has no quota")

	require.Equal(t, 0, env.CLI(t, "cancel", late[0].ID, "--wait").Code)
	require.Equal(t, run.Cancelled, late[0].Wait().Status)
	require.Equal(t, run.Pending, late[1].Document().Stages[0].Status, "who left the queue had no slot to pass on")

	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for _, r := range append(holders, late[1]) {
		require.Equal(t, run.Succeeded, r.Wait().Status)
	}
}
