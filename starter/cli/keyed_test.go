package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/starter/cli"
)

// TestRunTellsOfOtherInputs: who is answered with a run that had other inputs is
// told so, and who is refused too.
func TestRunTellsOfOtherInputs(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	held, w := b.claim(t, keyOf("x"))
	b.settle(t, held, dedup.Completed)
	b.server.Complete(w, run.Document{})
	of := w.ID + "@" + w.RunID
	note := "a duplicate of " + of + " by its key, but with other inputs"
	attach := file(t, "attach.yaml", keyed)
	reject := file(t, "reject.yaml", strings.Replace(keyed, "window: 1h", "window: 1h, on_mismatch: reject", 1))

	r := b.exec(t, "run", attach, "-i", "who=x", "--detach")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "\n  note: "+note+"\n")
	r = b.exec(t, "run", attach, "-i", "who=x", "--detach", "-o", "json")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, []string{note}, oneDocument[run.Document](t, r.out).Notes)

	r = b.exec(t, "run", reject, "-i", "who=x")
	require.Equal(t, cli.ExitRejected, r.code, r.err)
	require.Contains(t, r.err, "rejected: a duplicate of run "+of+", with other inputs\n")
	r = b.exec(t, "run", reject, "-i", "who=x", "-o", "json")
	require.Equal(t, cli.ExitRejected, r.code, r.err)
	require.Equal(t, []string{note}, oneDocument[run.Document](t, r.out).Notes)
}

// TestRunOfADuplicateWithoutRedis: Temporal alone knows of the run, so that the
// window and the audit are left out, which is said.
func TestRunOfADuplicateWithoutRedis(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.add(run.KeyedID("default", "default", "hello", "x"), run.Document{})
	path := file(t, "keyed.yaml", keyed)
	const unknown = "warning: the audit does not know of this duplicate: REDIS_URL is not set"

	r := b.exec(t, "run", path, "-i", "who=x", "--detach")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.err, unknown)
	require.NotContains(t, r.out, "note:", "it still runs: no window matters")

	b.end(s, run.Succeeded, nil)
	r = b.exec(t, "run", path, "-i", "who=x", "--detach")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.err, unknown)
	require.Contains(t, r.out, "note: Redis did not tell whether the window of "+s.w.ID)
}

// TestReplacingRequestDeliveredAgainIsAudited: also while its run waits for older
// ones to make way, when Redis knows nothing of it yet.
func TestReplacingRequestDeliveredAgainIsAudited(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	made := b.onStart(run.Document{})
	args := []string{"run", file(t, "keyed.yaml", keyed), "-i", "who=x", "--on-duplicate", "replace", "--request-id", "q1", "--detach"}
	require.Equal(t, cli.ExitOK, b.exec(t, append(args, "--sender", "a")...).code)
	s := <-made
	require.Equal(t, cli.ExitOK, b.exec(t, append(args, "--sender", "b")...).code)
	require.Empty(t, made, "it runs once")

	r := b.exec(t, "dedup", "audit", "--key", "x", "-o", "json")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	entries := oneDocument[struct{ Entries []audit.Entry }](t, r.out).Entries
	require.Len(t, entries, 1)
	e := entries[0]
	require.Equal(t, audit.Attached, e.Decision)
	require.Equal(t, audit.Redelivery, e.RootCause)
	require.Equal(t, []string{"q1", "b", s.w.ID, s.w.RunID}, []string{e.RequestID, e.By, e.Owner, e.OwnerRun})
}
