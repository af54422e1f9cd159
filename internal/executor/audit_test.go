package executor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/executor"
	"belay.run/internal/redistest"
	"belay.run/internal/task"
)

// auditor keeps entries.
type auditor struct {
	mu      sync.Mutex
	entries []audit.Entry
}

func (a *auditor) Write(_ context.Context, e audit.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, e)
	return nil
}

func (a *auditor) all() []audit.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]audit.Entry{}, a.entries...)
}

// audited returns an executor whose claims have a local tier.
func audited(t *testing.T, k kinds) (*executor.Executor, *dedup.Claims, *auditor) {
	t.Helper()
	claims, err := dedup.Open(redistest.Start(t).Client(t), dedup.Options{Tier: true})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	require.Eventually(t, claims.TierUp, time.Minute, 10*time.Millisecond)
	kept := &auditor{}
	return with(t, executor.Config{Registry: k, Claims: claims, Audit: kept}), claims, kept
}

// by is a task with a key, of a run and whoever asks for it.
func by(sender, run, key string) task.Task {
	tk := keyed("fine", key)
	tk.Origin.Sender, tk.Origin.Run, tk.Origin.Node, tk.Origin.IdempotencyKey = sender, run, "n", "q-"+run
	return tk
}

func TestDuplicatesAreAudited(t *testing.T) {
	t.Parallel()
	var g gauge
	hold := make(chan struct{})
	e, claims, kept := audited(t, kinds{"fine": fine, "hold": g.until(hold)})
	ask := func(tk task.Task) {
		t.Helper()
		r, err := e.Submit(t.Context(), tk)
		require.NoError(t, err)
		require.Equal(t, task.Duplicate, r.Status)
	}
	succeeds(t, e, by("ada", "r1", "k"))
	succeeds(t, e, by("ada", "r1", "k")) // its own, which it is told once more
	require.Empty(t, kept.all())
	ask(by("ada", "r2", "k"))
	ask(by("bob", "r3", "k"))
	var all sync.WaitGroup
	all.Go(func() {
		tk := by("ada", "r4", "h")
		tk.Type = "hold"
		succeeds(t, e, tk)
	})
	require.Eventually(t, func() bool { now, _, _ := g.seen(); return now > 0 }, time.Minute, time.Millisecond)
	ask(by("ada", "r5", "h"))
	close(hold)
	all.Wait()
	_, err := claims.Claim(t.Context(), dedup.Claim{
		Key: dedup.Key{Tenant: "acme", Project: "web", Name: "d"}, Lease: time.Microsecond,
		Owner: dedup.Owner{RunKey: "gone", WorkflowID: "deploy", RunID: "run-1"},
	})
	require.NoError(t, err)
	succeeds(t, e, by("ada", "r6", "d"))

	entry := func(run, key, owner, sender string, d audit.Decision, c audit.Cause) audit.Entry {
		return audit.Entry{
			Tenant: "acme", Project: "web", Key: key, Run: run, Node: "n", Owner: owner, By: sender,
			Decision: d, RootCause: c, RequestID: "q-" + run, Delivery: run + "/n",
		}
	}
	dead := entry("r6", "d", "deploy", "ada", audit.Takeover, audit.CrossInstance)
	dead.OwnerRun = "run-1"
	got := kept.all()
	for i := range got {
		require.Contains(t, []string{audit.TierLocal, audit.TierRedis}, got[i].Tier)
		got[i].Tier = ""
	}
	require.Equal(t, []audit.Entry{
		entry("r2", "k", "r1", "ada", audit.Answered, audit.DoubleTrigger),
		entry("r3", "k", "r1", "bob", audit.Answered, audit.CrossInstance),
		entry("r5", "h", "r4", "ada", audit.Rejected, audit.DoubleTrigger),
		dead,
	}, got)
}

// What this process has done itself it answers from its memory.
func TestADuplicateThatTheLocalTierKnowsIsAudited(t *testing.T) {
	t.Parallel()
	e, _, kept := audited(t, kinds{"fine": fine})
	succeeds(t, e, by("ada", "r1", "k"))
	require.Eventually(t, func() bool {
		r, err := e.Submit(t.Context(), by("ada", "r2", "k"))
		require.NoError(t, err)
		require.Equal(t, task.Duplicate, r.Status)
		got := kept.all()
		return got[len(got)-1].Tier == audit.TierLocal
	}, time.Minute, time.Millisecond)
}

// A batch that is run again is nothing but duplicates: they would leave the audit
// no room for others.
func TestDuplicatesOfABatchAreAuditedWithinBounds(t *testing.T) {
	t.Parallel()
	e, _, kept := audited(t, kinds{"fine": fine})
	succeeds(t, e, by("ada", "r1", "k"))
	tasks := many(5000, by("bob", "b1", "k"))
	require.Equal(t, map[task.Status]int{task.Duplicate: 5000}, collect(t, tasks, e.SubmitBatch(t.Context(), tasks)))
	require.GreaterOrEqual(t, len(kept.all()), 100)
	require.Less(t, len(kept.all()), 5000)
}
