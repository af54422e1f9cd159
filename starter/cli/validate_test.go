package cli_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/durations"
	"belay.run/internal/redistest"
	"belay.run/starter/cli"
)

const onceFile = `
name: release
inputs: {tag: {default: v1}, env: {default: prod}}
timeout: 30m
dedup: {key: "${{ inputs.tag }}-${{ inputs.env }}", window: 4h, on_duplicate: replace, on_mismatch: reject}
concurrency: {group: "deploy-${{ inputs.env }}"}
stages:
  - name: build
    matrix: {os: [linux, darwin]}
    concurrency: {group: cluster, limit: 2, on_full: cancel_running}
    steps:
      - {name: plain, run: make}
      - name: group
        parallel:
          - {name: push, run: ./push.sh, timeout: 5m, dedup: {key: "${{ matrix.os }}-${{ inputs.tag }}", on_duplicate: reject}, risk: low}
finally:
  - {name: report, uses: noop, dedup: {key: "report-${{ inputs.tag }}", claim_timeout: 90s}}
`

func TestValidateExplain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	once, plain := file(t, "once.yaml", onceFile), file(t, "plain.yaml", hello)
	r := b.exec(t, "validate", "--explain", once, plain)
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, once+`: ok
  pipeline release
    key           ${{ inputs.tag }}-${{ inputs.env }}
    among         runs of release, of one tenant and project
    window        4h from its completion
    duplicate     replace: the run that there is is cancelled; when it is gone, the new one runs
    other inputs  reject: refused
    risk          high: waits up to 5m for Redis, then fails
    group         deploy-${{ inputs.env }}
    limit         1 at a time; the next waits, in order
  build
    group         cluster
    limit         2 at a time; the oldest is cancelled to make way for the next
  build/push
    key           ${{ matrix.os }}-${{ inputs.tag }}
    among         steps of all pipelines, of one tenant and project
    window        auto: from its completion for twice the measured p99, at least 10m (twice the timeout); 24h where nothing was measured
    duplicate     reject: the step fails while another runs it; once it is done, its result is taken
    other inputs  attach: a duplicate all the same, with a warning
    risk          low: goes on without Redis, and says so
  finally/report
    key           report-${{ inputs.tag }}
    among         steps of all pipelines, of one tenant and project
    window        auto: from its completion for twice the measured p99, at least 10m (twice the timeout); 24h where nothing was measured
    duplicate     attach: waits for the one that runs and takes its result; runs if that fails
    other inputs  attach: a duplicate all the same, with a warning
    risk          high: waits up to 1m30s for Redis, then fails
    runs          control: beside the workflows, as it does nothing (rule noop)
`+plain+`: ok
  nothing has a key or a group: each request runs
`, r.out)

	type doc struct {
		Files []map[string]any
	}
	parsed := oneDocument[doc](t, b.exec(t, "validate", "--explain", once, "-o", "json").out)
	require.NotContains(t, parsed.Files[0], "timeouts")
	list, ok := parsed.Files[0]["explain"].([]any)
	require.True(t, ok)
	require.Len(t, list, 4)
	require.Equal(t, map[string]any{
		"node": "", "risk": "high",
		"dedup": map[string]any{
			"key": "${{ inputs.tag }}-${{ inputs.env }}", "space": "runs of release, of one tenant and project", "window": "4h",
			"on_duplicate": "replace", "on_mismatch": "reject", "claim_timeout": "5m",
		},
		"concurrency": map[string]any{"group": "deploy-${{ inputs.env }}", "limit": 1.0, "on_full": "queue"},
	}, list[0])
	require.NotContains(t, oneDocument[doc](t, b.exec(t, "validate", once, "-o", "json").out).Files[0], "explain")
}

func TestValidateSuggestsTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	once := file(t, "once.yaml", onceFile)
	r := b.exec(t, "validate", "--suggest-timeouts", once)
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "needs Redis")

	rdb := redistest.Start(t).Client(t)
	connect := b.opts.Connect
	b.opts.Connect = func(ctx context.Context) (*cli.Connection, error) {
		conn, err := connect(ctx)
		if err == nil {
			conn.Redis = func() (redis.UniversalClient, error) { return rdb, nil }
		}
		return conn, err
	}
	measured := durations.New(rdb)
	for node, took := range map[string][]time.Duration{
		"":                     {10 * time.Minute, 12 * time.Minute, 20 * time.Minute},
		"build[os=linux]/push": {100 * time.Millisecond, 20 * time.Second},
		"finally/report":       {0},
	} {
		for _, d := range took {
			require.NoError(t, measured.Add(t.Context(), durations.Subject{Tenant: "acme", Project: "web", Pipeline: "release", Node: node}, d))
		}
	}
	r = b.exec(t, "validate", "--suggest-timeouts", "--tenant", "acme", "--project", "web", once)
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Equal(t, once+`: ok
  NODE                  RUNS  P50     P95     P99     TIMEOUT  SUGGESTED  WINDOW AUTO
  (the pipeline)        3     12m00s  20m00s  20m00s  30m00s   40m00s     1h00m
  build[os=linux]/push  2     0.1s    20.0s   20.0s   5m00s    40.0s      10m00s
  finally/report        1     0.0s    0.0s    0.0s    5m00s    10.0s      10m00s
  nothing was measured yet of 3 nodes: only what has a key is
`, r.out)

	r = b.exec(t, "validate", "--suggest-timeouts", once)
	require.Equal(t, once+": ok\n  nothing was measured yet of 6 nodes: only what has a key is\n", r.out)

	r = b.exec(t, "validate", "--suggest-timeouts", "--tenant", "acme", "--project", "web", once, "-o", "json")
	doc := oneDocument[struct {
		Files []struct{ Timeouts []map[string]any }
	}](t, r.out)
	require.Equal(t, map[string]any{
		"node": "", "count": 3.0, "p50_seconds": 720.0, "p95_seconds": 1200.0, "p99_seconds": 1200.0,
		"timeout_seconds": 1800.0, "suggested_timeout_seconds": 2400.0, "suggested_window_seconds": 3600.0,
	}, doc.Files[0].Timeouts[0])
	require.Len(t, doc.Files[0].Timeouts, 6)
}

func TestValidateExplainsRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	steps := file(t, "p.yaml", `name: p
stages:
  - name: s
    steps:
      - {name: quick, uses: http, with: {url: "https://x.example"}}
      - {name: long, uses: http, with: {url: "https://x.example"}, labels: {duration: 30s}}
      - {name: ours, uses: http, with: {url: "https://x.example"}, labels: {team: data}}
`)
	rules := file(t, "rules.yaml", "rules: [{name: data, labels: {team: data}, to: host}]")
	bad := file(t, "bad.yaml", "rules: [{name: data, uses: [htp], to: moon}]")

	r := b.exec(t, "validate", "--explain", "--light-routes", rules, steps)
	require.Equal(t, cli.ExitOK, r.code, r.err)
	require.Contains(t, r.out, "  s/quick\n    runs          light: among the light tasks of any worker (rule default)\n")
	require.Contains(t, r.out, "  s/long\n    runs          host: on the host of its stage, which takes one for it (rule long)\n")
	require.Contains(t, r.out, "  s/ours\n    runs          host: on the host of its stage, which takes one for it (rule data)\n")

	r = b.exec(t, "validate", "--light-routes", bad, steps)
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, `unknown type "htp", did you mean http?`)
	require.Contains(t, r.err, `to: found "moon", expected light or host`)
}
