package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/starter/cli"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

// onceBundle is a command line with a Redis.
type onceBundle struct {
	*bundle

	redis  *redistest.Server
	claims *dedup.Claims
	audit  *audit.Log
}

func setupOnce(t *testing.T) *onceBundle {
	t.Helper()
	b := &onceBundle{bundle: setup(t), redis: redistest.Start(t)}
	rdb := b.redis.Client(t)
	claims, err := dedup.Open(rdb, dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	b.claims, b.audit = claims, audit.New(rdb, audit.Options{})
	connect := b.opts.Connect
	b.opts.Connect = func(ctx context.Context) (*cli.Connection, error) {
		conn, err := connect(ctx)
		if err == nil {
			conn.Redis = func() (redis.UniversalClient, error) { return rdb, nil }
		}
		return conn, err
	}
	return b
}

// keyed is hello with a key.
const keyed = hello + `dedup: {key: "${{ inputs.who }}", window: 1h}
`

func keyOf(name string) dedup.Key {
	return dedup.Key{Tenant: "default", Project: "default", Pipeline: "hello", Name: name}
}

// claim makes a run that holds a key, and that Temporal knows.
func (b *onceBundle) claim(t *testing.T, key dedup.Key) (dedup.Record, *frontend.Workflow) {
	t.Helper()
	w := b.server.Add(&frontend.Workflow{ID: run.KeyedID(key.Tenant, key.Project, "hello", key.Name), Type: workflows.PipelineWorkflow})
	v, err := b.claims.Claim(t.Context(), dedup.Claim{
		Key: key, Owner: dedup.Owner{RunKey: w.RunID, RunID: w.RunID, WorkflowID: w.ID},
		Request: dedup.Request{ID: "q-" + key.Name, Sender: "ada@box"}, Fingerprint: "other",
	})
	require.NoError(t, err)
	require.Equal(t, dedup.Granted, v.Decision)
	return v.Record, w
}

func (b *onceBundle) settle(t *testing.T, r dedup.Record, state dedup.State) {
	t.Helper()
	require.NoError(t, b.claims.Settle(t.Context(), dedup.Settlement{
		Held: dedup.Held{Key: r.Key, Owner: r.Owner, Token: r.Token}, State: state, Window: time.Hour,
	}))
}

func (b *onceBundle) kill(w *frontend.Workflow) {
	b.server.Terminate(w, "ops", "killed")
}

type checked struct {
	Duplicate   bool   `json:"duplicate"`
	Key         string `json:"key"`
	State       string `json:"state"`
	Would       string `json:"would"`
	DuplicateOf string `json:"duplicate_of"`
	By          string `json:"by"`
	Until       *time.Time
	Mismatch    bool   `json:"mismatch"`
	Reason      string `json:"reason"`
}

func (b *onceBundle) check(t *testing.T, args ...string) (checked, int) {
	t.Helper()
	r := b.exec(t, append([]string{"dedup", "check", "-o", "json"}, args...)...)
	require.Empty(t, r.err)
	return oneDocument[checked](t, r.out), r.code
}

func TestDedupCheck(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	path := file(t, "keyed.yaml", keyed)

	t.Run("NothingIsKnown", func(t *testing.T) {
		t.Parallel()
		doc, code := b.check(t, path, "-i", "who=nobody")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, checked{Key: "nobody", State: "free", Would: "run", Reason: "nothing holds this key"}, doc)
		r, err := b.claims.Lookup(t.Context(), keyOf("nobody"))
		require.NoError(t, err)
		require.Nil(t, r, "a look claims nothing")
	})

	t.Run("InFlight", func(t *testing.T) {
		t.Parallel()
		_, w := b.claim(t, keyOf("busy"))
		doc, code := b.check(t, path, "-i", "who=busy")
		require.Equal(t, cli.ExitRejected, code)
		require.True(t, doc.Duplicate)
		require.Equal(t, "running", doc.State)
		require.Equal(t, "attach", doc.Would)
		require.Equal(t, w.ID+"@"+w.RunID, doc.DuplicateOf)
		require.Equal(t, "ada@box", doc.By)
		require.True(t, doc.Mismatch, "its inputs are others")

		for policy, want := range map[string]struct {
			would string
			code  int
		}{"reject": {"reject", cli.ExitRejected}, "replace": {"replace", cli.ExitOK}} {
			own := file(t, "own.yaml", strings.Replace(keyed, "window: 1h", "window: 1h, on_duplicate: "+policy, 1))
			doc, code := b.check(t, own, "-i", "who=busy")
			require.Equal(t, want.code, code)
			require.Equal(t, want.would, doc.Would)
		}
		own := file(t, "own.yaml", strings.Replace(keyed, "window: 1h", "window: 1h, on_mismatch: reject", 1))
		doc, _ = b.check(t, own, "-i", "who=busy")
		require.Equal(t, "reject", doc.Would)
	})

	t.Run("InFlightOfADeadOwner", func(t *testing.T) {
		t.Parallel()
		_, w := b.claim(t, keyOf("dead"))
		b.kill(w)
		doc, code := b.check(t, path, "-i", "who=dead")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "dead", doc.State)
		require.Equal(t, "run", doc.Would)
	})

	t.Run("Completed", func(t *testing.T) {
		t.Parallel()
		r, w := b.claim(t, keyOf("done"))
		b.settle(t, r, dedup.Completed)
		doc, code := b.check(t, path, "-i", "who=done")
		require.Equal(t, cli.ExitRejected, code)
		require.Equal(t, "completed", doc.State)
		require.Equal(t, "answer", doc.Would)
		require.Equal(t, w.ID+"@"+w.RunID, doc.DuplicateOf)
	})

	t.Run("FailedBlocksNobody", func(t *testing.T) {
		t.Parallel()
		r, _ := b.claim(t, keyOf("failed"))
		b.settle(t, r, dedup.Failed)
		doc, code := b.check(t, path, "-i", "who=failed")
		require.Equal(t, cli.ExitOK, code)
		require.Equal(t, "failed", doc.State)

		// But the same request means the run that it began.
		doc, code = b.check(t, path, "-i", "who=failed", "--request-id", "q-failed")
		require.Equal(t, cli.ExitRejected, code)
		require.Equal(t, "redelivered", doc.State)
	})

	t.Run("ARunThatRedisHasLost", func(t *testing.T) {
		t.Parallel()
		w := b.server.Add(&frontend.Workflow{ID: run.KeyedID("default", "default", "hello", "lost"), Type: workflows.PipelineWorkflow})
		doc, code := b.check(t, path, "-i", "who=lost")
		require.Equal(t, cli.ExitRejected, code)
		require.Equal(t, "running", doc.State)
		require.Equal(t, w.ID+"@"+w.RunID, doc.DuplicateOf)

		b.server.Complete(w, run.Document{})
		doc, code = b.check(t, path, "-i", "who=lost")
		require.Equal(t, cli.ExitRejected, code)
		require.Equal(t, "completed", doc.State)
	})

	t.Run("ByKey", func(t *testing.T) {
		t.Parallel()
		b.claim(t, keyOf("by-key"))
		doc, code := b.check(t, "--key", "by-key", "--pipeline", "hello")
		require.Equal(t, cli.ExitRejected, code)
		require.False(t, doc.Mismatch, "nobody knows the inputs")
		_, code = b.check(t, "--key", "by-key", "--pipeline", "other")
		require.Equal(t, cli.ExitOK, code)
		_, code = b.check(t, "--key", "by-key", "--step")
		require.Equal(t, cli.ExitOK, code, "the keys of steps are others")
		_, code = b.check(t, "--key", "by-key", "--pipeline", "hello", "--tenant", "acme")
		require.Equal(t, cli.ExitOK, code, "another tenant's")
		_, code = b.check(t, path, "--dedup-key", "by-key")
		require.Equal(t, cli.ExitRejected, code)
	})

	t.Run("NoKey", func(t *testing.T) {
		t.Parallel()
		path := file(t, "hello.yaml", hello)
		doc, code := b.check(t, path)
		require.Equal(t, cli.ExitOK, code)
		require.Contains(t, doc.Reason, "no key")
		b.server.Add(&frontend.Workflow{ID: run.ID("default", "default", "hello", "q7"), Type: workflows.PipelineWorkflow})
		doc, code = b.check(t, path, "--request-id", "q7")
		require.Equal(t, cli.ExitRejected, code)
		require.Equal(t, "redelivered", doc.State)
	})
}

// times are shown in the zone of the machine.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)

func steady(text string, names ...string) string {
	text = times.ReplaceAllString(text, "2026-01-31 15:00:00")
	return strings.NewReplacer(names...).Replace(text)
}

func TestDedupCheckInWords(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	path := file(t, "keyed.yaml", keyed)
	r, w := b.claim(t, keyOf("shop"))
	b.settle(t, r, dedup.Completed)
	got := b.exec(t, "dedup", "check", path, "-i", "who=shop")
	require.Equal(t, cli.ExitRejected, got.code)
	require.Empty(t, got.err)
	require.Equal(t, `duplicate of default/default/hello/k/shop@RUN
  key       shop
  state     completed
  by        ada@box
  claimed   2026-01-31 15:00:00
  ended     2026-01-31 15:00:00
  blocks to 2026-01-31 15:00:00
  would     answer
  inputs    are others than those of that run
  because   it completed, and its window is not over
`, steady(got.out, w.RunID, "RUN"))
	got = b.exec(t, "dedup", "check", path, "-i", "who=free")
	require.Equal(t, "would run\n  key       free\n  state     free\n  because   nothing holds this key\n", got.out)
}

func (b *onceBundle) write(t *testing.T, n int, change func(e *audit.Entry)) {
	t.Helper()
	e := audit.Entry{
		Tenant: "acme", Project: "web", Pipeline: "deploy", Key: fmt.Sprintf("k%d", n), Owner: "acme/web/deploy/k/x", OwnerRun: "r",
		By: "ada@box", RootCause: audit.DoubleTrigger, Decision: audit.Attached, RequestID: fmt.Sprint(n), Delivery: fmt.Sprint(n),
		Tier: audit.TierRedis,
	}
	change(&e)
	require.NoError(t, b.audit.Write(t.Context(), e))
}

func TestDedupAudit(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	r := b.exec(t, "dedup", "audit")
	require.Equal(t, result{cli.ExitOK, "", "no entries\n"}, r)
	r = b.exec(t, "dedup", "audit", "-o", "json")
	require.JSONEq(t, `{"entries": []}`, r.out)

	b.write(t, 1, func(*audit.Entry) {})
	b.write(t, 2, func(e *audit.Entry) { e.RootCause, e.Decision, e.Node = audit.Redelivery, audit.Rejected, "build/x" })
	b.write(t, 3, func(e *audit.Entry) {
		e.Tenant, e.Decision, e.RootCause, e.Key, e.Owner = "beta", audit.OperatorRelease, "", "evil\x1b[31m", ""
	})

	entries := func(args ...string) string {
		r := b.exec(t, append([]string{"dedup", "audit", "-o", "json"}, args...)...)
		require.Equal(t, cli.ExitOK, r.code, r.err)
		var ids []string
		for _, e := range oneDocument[struct{ Entries []audit.Entry }](t, r.out).Entries {
			ids = append(ids, e.RequestID)
		}
		return strings.Join(ids, " ")
	}
	require.Equal(t, "2 1", entries("--tenant", "acme"))
	require.Equal(t, "3", entries("--tenant", "beta"))
	require.Equal(t, "2", entries("--cause", "redelivery"))
	require.Equal(t, "2", entries("--decision", "rejected"))
	require.Equal(t, "1", entries("--key", "k1"))
	require.Equal(t, "2", entries("--tenant", "acme", "--limit", "1"))
	require.Empty(t, entries("--pipeline", "other"))
	require.Empty(t, entries("--project", "other"))
	require.Empty(t, entries("--until", "1h"))
	require.Len(t, strings.Fields(entries("--since", "1h")), 3)

	r = b.exec(t, "dedup", "audit", "--tenant", "acme")
	require.Equal(t, `TIME                 DECISION  CAUSE           PIPELINE  KEY  BY       OF
2026-01-31 15:00:00  rejected  redelivery      deploy    k2   ada@box  acme/web/deploy/k/x@r (build/x)
2026-01-31 15:00:00  attached  double_trigger  deploy    k1   ada@box  acme/web/deploy/k/x@r
`, steady(r.out))
	r = b.exec(t, "dedup", "audit", "--tenant", "beta")
	require.NotContains(t, r.out, "\x1b")

	r = b.exec(t, "dedup", "audit", "--tenant", "acme", "-o", "jsonl")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 2)
	var first map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	for _, field := range []string{"at", "tenant", "project", "key", "run", "node", "owner", "by", "root_cause", "decision"} {
		require.Contains(t, first, field)
	}
	require.Equal(t, "k1", first["key"], "the oldest first")
}

func TestDedupAuditExportsAll(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	for i := range 120 {
		b.write(t, i, func(*audit.Entry) {})
	}
	require.Equal(t, 120, strings.Count(b.exec(t, "dedup", "audit", "-o", "jsonl").out, "\n"))
	require.Equal(t, 7, strings.Count(b.exec(t, "dedup", "audit", "-o", "jsonl", "--limit", "7").out, "\n"))
	require.Equal(t, 51, strings.Count(b.exec(t, "dedup", "audit").out, "\n"))
}

func TestDedupStats(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	r := b.exec(t, "dedup", "stats")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "nothing was claimed")
	require.Contains(t, r.out, "in flight: 0 claims\n")

	meter := audit.NewMeter(b.redis.Client(t))
	for range 3 {
		meter.Claimed(&dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy"}, Decision: dedup.Granted, Took: 2 * time.Millisecond})
	}
	require.NoError(t, meter.Flush(t.Context()))
	b.write(t, 1, func(*audit.Entry) {})
	b.write(t, 2, func(e *audit.Entry) { e.Decision = audit.Rerun })
	b.claim(t, keyOf("live"))
	_, w := b.claim(t, keyOf("dead"))
	b.kill(w)

	r = b.exec(t, "dedup", "stats")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, `2026-01-31 15:00:00 to 2026-01-31 15:00:00

requests
  TENANT  PROJECT  PIPELINE  RAN  BLOCKED  RATE   CLIENT_RETRY  REDELIVERY  DOUBLE_TRIGGER  CROSS_INSTANCE  RERUN  TAKEOVER
  acme    web      deploy    3    1        25.0%  0             0           1               0               1      0

what claims cost
  ANSWERED BY  CLAIMS  MEAN  P50    P95    P99
  redis        3       2ms   2.1ms  2.1ms  2.1ms

in flight: 2 claims

whose owner is no longer open (the next sweep ends them)
  CLAIMED              KEY   OWNER
  2026-01-31 15:00:00  dead  default/default/hello/k/dead@RUN
`, steady(r.out, w.RunID, "RUN"))

	r = b.exec(t, "dedup", "stats", "-o", "json", "--tenant", "default")
	doc := oneDocument[struct {
		Pipelines []any
		InFlight  struct {
			Claims int
			Dead   []struct{ Key string }
		} `json:"in_flight"`
	}](t, r.out)
	require.Empty(t, doc.Pipelines)
	require.Equal(t, 2, doc.InFlight.Claims)
	require.Equal(t, "dead", doc.InFlight.Dead[0].Key)
}

func TestDedupRelease(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	release := func(t *testing.T, key string, args ...string) result {
		t.Helper()
		return b.exec(t, append([]string{"dedup", "release", key, "--pipeline", "hello", "--reason", "stuck"}, args...)...)
	}
	free := func(t *testing.T, key string) {
		t.Helper()
		v, err := b.claims.Claim(t.Context(), dedup.Claim{
			Key: keyOf(key), Owner: dedup.Owner{RunKey: "next", WorkflowID: "x", RunID: "next"}, Request: dedup.Request{ID: "q"},
		})
		require.NoError(t, err)
		require.Equal(t, dedup.Granted, v.Decision)
	}

	t.Run("OfALiveOwnerNeedsYes", func(t *testing.T) {
		t.Parallel()
		held, _ := b.claim(t, keyOf("live"))
		r := release(t, "live")
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "still runs")
		require.Contains(t, r.err, "--yes")
		now, err := b.claims.Lookup(t.Context(), keyOf("live"))
		require.NoError(t, err)
		require.Equal(t, held.Token, now.Token)

		r = release(t, "live", "--yes", "-o", "json")
		require.Equal(t, cli.ExitOK, r.code, r.err)
		doc := oneDocument[struct {
			Released bool
			State    string
			Owner    string
		}](t, r.out)
		require.True(t, doc.Released)
		require.Equal(t, "running", doc.State)
		free(t, "live")
		n := 0
		for e, err := range b.audit.Read(t.Context(), audit.Filter{Key: "live"}) {
			require.NoError(t, err)
			require.Equal(t, audit.OperatorRelease, e.Decision)
			require.Equal(t, "stuck", e.Reason)
			require.Contains(t, e.By, "@")
			n++
		}
		require.Equal(t, 1, n)
		require.ErrorIs(t, b.claims.Settle(t.Context(), dedup.Settlement{
			Held: dedup.Held{Key: held.Key, Owner: held.Owner, Token: held.Token}, State: dedup.Completed,
		}), dedup.ErrNotOwner)
	})

	t.Run("OfADeadOwner", func(t *testing.T) {
		t.Parallel()
		_, w := b.claim(t, keyOf("dead"))
		b.kill(w)
		r := release(t, "dead")
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Equal(t, "released default/default/hello key \"dead\", which was running for default/default/hello/k/dead@RUN\n",
			steady(r.out, w.RunID, "RUN"))
		free(t, "dead")
	})

	t.Run("OfACompletedOne", func(t *testing.T) {
		t.Parallel()
		held, _ := b.claim(t, keyOf("done"))
		b.settle(t, held, dedup.Completed)
		require.Equal(t, cli.ExitOK, release(t, "done").code)
		free(t, "done")
	})

	t.Run("OfNothing", func(t *testing.T) {
		t.Parallel()
		r := release(t, "none")
		require.Equal(t, cli.ExitUsage, r.code)
		require.Contains(t, r.err, "nothing holds")
		held, _ := b.claim(t, keyOf("failed"))
		b.settle(t, held, dedup.Failed)
		require.Equal(t, cli.ExitUsage, release(t, "failed").code)
	})
}

func TestDedupUsage(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	path := file(t, "keyed.yaml", keyed)
	for _, tc := range []struct{ args, says string }{
		{"dedup what", `unknown command "what"`},
		{"dedup check", "give a FILE, or a key by --key"},
		{"dedup check --key k", "--pipeline NAME"},
		{"dedup check --key k --step --pipeline p", "leave out --pipeline"},
		{"dedup check " + path + " --key k", "go without a FILE"},
		{"dedup check --key k --step -i a=b", "go with a FILE"},
		{"dedup check no-such-file.yaml", "no-such-file.yaml"},
		{"dedup check " + path + " -i nobody=x", "1 error"},
		{"dedup audit --since yesterday", "--since"},
		{"dedup audit --until tomorrow", "--until"},
		{"dedup audit --since 1h --until 2h", "is not before"},
		{"dedup audit --cause bad", "client_retry"},
		{"dedup audit --decision bad", "operator_release"},
		{"dedup audit --limit 0", "1 to 10000"},
		{"dedup audit -o xml", "jsonl"},
		{"dedup stats --since x", "--since"},
		{"dedup release", "accepts 1 arg"},
		{"dedup release k --step", "--reason"},
		{"dedup release k --reason r", "--pipeline NAME"},
	} {
		r := b.exec(t, strings.Fields(tc.args)...)
		require.Equal(t, cli.ExitUsage, r.code, tc.args)
		require.Contains(t, r.err, tc.says, tc.args)
		require.Empty(t, r.out, tc.args)
	}
	r := b.exec(t, "dedup", "audit", "--cause", "bad", "-o", "json")
	doc := oneDocument[struct {
		Error struct {
			Code    int
			Message string
		}
	}](t, r.out)
	require.Equal(t, cli.ExitUsage, doc.Error.Code)
}

func TestDedupWithoutRedis(t *testing.T) {
	t.Parallel()
	t.Run("NoneIsConfigured", func(t *testing.T) {
		t.Parallel()
		for _, args := range []string{"dedup audit", "dedup stats", "dedup check --key k --step", "dedup release k --step --reason r"} {
			r := setup(t).exec(t, strings.Fields(args)...)
			require.Equal(t, cli.ExitUsage, r.code, args)
			require.Contains(t, r.err, "REDIS_URL", args)
		}
	})
	t.Run("ItIsAway", func(t *testing.T) {
		t.Parallel()
		b := setupOnce(t)
		b.redis.Stop(t)
		for _, args := range []string{"dedup audit", "dedup stats", "dedup check --key k --step", "dedup release k --step --reason r"} {
			r := b.exec(t, strings.Fields(args)...)
			require.Equal(t, cli.ExitUnreachable, r.code, args)
			require.Contains(t, r.err, "cannot use Redis at "+b.redis.URL, args)
		}
	})
	t.Run("TemporalIsAway", func(t *testing.T) {
		t.Parallel()
		b := setupOnce(t)
		b.claim(t, keyOf("k"))
		b.server.Outage(true)
		r := b.exec(t, "dedup", "stats")
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Contains(t, r.out, "in flight: 1 claim, of 1 Temporal could not say")
		r = b.exec(t, "dedup", "release", "k", "--pipeline", "hello", "--reason", "r")
		require.Equal(t, cli.ExitUnreachable, r.code, "it is not known to be dead")
		require.Contains(t, r.err, "not known")
	})
}

func TestDedupReport(t *testing.T) {
	t.Parallel()
	b := setupOnce(t)
	require.NoError(t, b.audit.Write(t.Context(), audit.Entry{
		Tenant: "acme", Project: "web", Pipeline: "deploy", Key: "k", RequestID: "q", RootCause: audit.Redelivery, Decision: audit.Answered,
	}))
	month := time.Now().UTC().Format("2006-01")
	r := b.exec(t, "dedup", "stats", "--report", "-o", "json")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	doc := oneDocument[audit.Report](t, r.out)
	require.GreaterOrEqual(t, len(doc.Months), 2, "this month and the one before")
	last := doc.Months[len(doc.Months)-1]
	require.Equal(t, month, last.Month)
	require.EqualValues(t, 1, last.Tenants[0].Saved)
	require.EqualValues(t, 1, last.Tenants[0].RootCauses[audit.Redelivery])

	r = b.exec(t, "dedup", "stats", "--report", "--tenant", "acme")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, month+" (not a whole month)")
	require.Regexp(t, `acme +0 +1 +100\.0% +0 +1 +0 +0 +0 +1 `, r.out)
	require.Contains(t, r.out, "nothing was claimed", "the month before")
}
