package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

// TestWarned reads each file of testdata/warned, which are valid, and compares
// the warnings with the text file beside it.
func TestWarned(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/warned/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		file, report := spec.Parse("", text)
		require.Empty(t, report.Errors, name)
		require.NotNil(t, file)
		got := lines("", report.Warnings)
		golden := strings.TrimSuffix(name, ".yaml") + ".txt"
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), got, name)
	}
}

// TestPlanOnce holds what keys, risk and groups become in a plan.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/valid/06_once.yaml")
	require.NoError(t, err)
	plan, err := parse(t, string(text)).Plan(nil)
	require.NoError(t, err)

	require.Equal(t, &spec.Dedup{
		Key: "${{ env.TARGET }}-${{ inputs.tag }}/${{ pipeline.name }} ${{ tenant }} ${{ project }}", Env: []string{"TARGET"},
		Window: 4 * time.Hour, OnDuplicate: spec.OnDuplicateReplace, OnMismatch: spec.OnDuplicateReject, ClaimTimeout: 90 * time.Second,
	}, plan.Dedup)
	require.Equal(t, spec.RiskHigh, plan.Risk)
	require.Equal(t, &spec.Concurrency{Group: "deploy-${{ env.TARGET }}", Limit: 1, OnFull: spec.OnFullQueue}, plan.Concurrency)

	build, deploy := plan.Stages[0], plan.Stages[1]
	require.Equal(t, &spec.Concurrency{Group: "build-${{ matrix.os }}", Limit: 4, OnFull: spec.OnFullReject}, build.Concurrency)
	require.Equal(t, &spec.Concurrency{Group: "cluster", Limit: 1, OnFull: spec.OnFullCancelRunning}, deploy.Concurrency)
	require.Equal(t, spec.RiskLow, build.Steps[0].Risk)
	require.Zero(t, build.Steps[0].Dedup.Window)
	require.Equal(t, &spec.Dedup{
		Key: "push-${{ matrix.os }}-${{ env.TARGET }}-${{ inputs.tag }}", Window: 13 * time.Hour,
		OnDuplicate: spec.OnDuplicateReject, OnMismatch: spec.OnDuplicateAttach, ClaimTimeout: time.Minute,
	}, build.Steps[1].Parallel[0].Dedup)
	require.Nil(t, build.Steps[1].Dedup)
	require.Empty(t, build.Steps[1].Risk)
	require.Equal(t, &spec.Dedup{
		Key: "mark-${{ inputs.tag }}", OnDuplicate: spec.OnDuplicateAttach, OnMismatch: spec.OnDuplicateAttach, ClaimTimeout: 5 * time.Minute,
	}, deploy.Steps[2].Dedup)
	require.Equal(t, spec.RiskHigh, deploy.Steps[2].Risk)
	require.Equal(t, []string{"build"}, deploy.Reads)
	require.NotNil(t, plan.Finally[0].Dedup)
}

// TestStageGroupReads holds that a stage is handed the stages that its group
// reads.
func TestStageGroupReads(t *testing.T) {
	t.Parallel()
	plan, err := parse(t, `
name: p
stages:
  - {name: a, steps: [{name: s, run: x, outputs: [o]}]}
  - {name: b, needs: [a], concurrency: {group: "${{ stages.a.outputs.o }}"}, steps: [{name: s, run: x}]}
`).Plan(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, plan.Stages[1].Reads)
}

const keyed = `
name: p
inputs:
  tag: {default: v1}
  n: {type: int, default: 3}
  ratio: {type: number, default: 0.5}
  on: {type: bool, default: false}
  note: {required: false}
env: {TARGET: "${{ inputs.tag }}-${{ tenant }}", RUN: "${{ run.id }}", NOTE: "${{ inputs.note ?? 'none' }}"}
dedup: {key: "${{ env.TARGET }}/${{ project }}/${{ pipeline.name }}/${{ inputs.n }}/${{ inputs.ratio }}/${{ inputs.on }}/${{ env.NOTE }}"}
stages:
  - {name: a, steps: [{name: s, run: x}]}
`

// throughJSON is a plan as a workflow gets it.
func throughJSON(t *testing.T, plan *spec.Plan) *spec.Plan {
	t.Helper()
	b, err := json.Marshal(plan)
	require.NoError(t, err)
	var back spec.Plan
	require.NoError(t, json.Unmarshal(b, &back))
	return &back
}

// TestDedupKey holds that a key is the same in a starter and in a workflow.
func TestDedupKey(t *testing.T) {
	t.Parallel()
	file := parse(t, keyed)
	for want, inputs := range map[string]map[string]string{
		"v1-acme/web/p/3/0.5/false/none":                       nil,
		"v2-acme/web/p/-7/2/true/x y":                          {"tag": "v2", "n": "-7", "ratio": "2.0", "on": "TRUE", "note": "x y"},
		"v1-acme/web/p/9007199254740991/1e+21/false/":          {"n": "9007199254740991", "ratio": "1e21", "note": ""},
		"${{ run.id }}-acme/web/p/3/0.0000001/false/${{ bad }": {"tag": "${{ run.id }}", "ratio": "1e-7", "note": "${{ bad }"},
	} {
		plan, err := file.Plan(inputs)
		require.NoError(t, err)
		for _, p := range []*spec.Plan{plan, throughJSON(t, plan)} {
			key, err := p.DedupKey("acme", "web")
			require.NoError(t, err)
			require.Equal(t, want, key)
		}
	}
}

func TestDedupKeyErrors(t *testing.T) {
	t.Parallel()
	plan := func(key string, inputs map[string]string) *spec.Plan {
		p, err := parse(t, `
name: p
inputs: {tag: {default: v1}, note: {required: false}}
env: {NOTE: "${{ inputs.note }}"}
dedup: {key: "`+key+`"}
stages:
  - {name: a, steps: [{name: s, run: x}]}
`).Plan(inputs)
		require.NoError(t, err)
		return p
	}
	for want, p := range map[string]*spec.Plan{
		"dedup.key: the key is empty":                                     plan("${{ inputs.tag }}", map[string]string{"tag": " "}),
		"dedup.key: the key is 1025 bytes long, at most 1024 are allowed": plan("${{ inputs.tag }}", map[string]string{"tag": strings.Repeat("x", 1025)}),
		"dedup.key: the key holds a control character":                    plan("a-${{ inputs.tag }}", map[string]string{"tag": "a\nb"}),
		"dedup.key: `inputs.note` has no value":                           plan("${{ inputs.note }}", nil),
		"env.NOTE: `inputs.note` has no value":                            plan("${{ env.NOTE }}", nil),
	} {
		_, err := p.DedupKey("t", "p")
		require.EqualError(t, err, want)
	}
	key, err := plan("${{ inputs.tag }}", map[string]string{"tag": strings.Repeat("x", 1024)}).DedupKey("t", "p")
	require.NoError(t, err)
	require.Len(t, key, 1024)
}

// TestDefaultDedup holds that a key from elsewhere is taken as it is.
func TestDefaultDedup(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"v1", "${{ inputs.x }}", "$${{ a }}", "$$${{", "a }} b"} {
		p := &spec.Plan{Name: "p", Dedup: spec.DefaultDedup(key)}
		got, err := p.DedupKey("t", "p")
		require.NoError(t, err)
		require.Equal(t, key, got)
	}
	require.Equal(t, spec.OnDuplicateAttach, spec.DefaultDedup("x").OnDuplicate)
	key, err := (&spec.Plan{Name: "p"}).DedupKey("t", "p")
	require.NoError(t, err)
	require.Empty(t, key)
}

// TestFingerprint holds that equal inputs have one fingerprint wherever it is
// taken, and others another.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	file := parse(t, keyed)
	seen := map[string]int{}
	for i, inputs := range []map[string]string{
		nil,
		{"tag": "v2"},
		{"tag": "\xff"},
		{"tag": "<&>"},
		{"n": "4"},
		{"n": "9007199254740990"},
		{"n": "9007199254740991"},
		{"ratio": "3"},
		{"on": "true"},
		{"note": ""},
		{"note": "3"},
	} {
		plan, err := file.Plan(inputs)
		require.NoError(t, err)
		taken, err := plan.Fingerprint()
		require.NoError(t, err)
		require.Len(t, taken, 64)
		again, err := throughJSON(t, plan).Fingerprint()
		require.NoError(t, err)
		require.Equal(t, taken, again, inputs)
		require.NotContains(t, seen, taken, inputs)
		seen[taken] = i
	}
	defaults, err := file.Plan(map[string]string{"tag": "v1", "n": "3", "ratio": "5e-1", "on": "False"})
	require.NoError(t, err)
	taken, err := defaults.Fingerprint()
	require.NoError(t, err)
	require.Zero(t, seen[taken], "given or by default, the inputs are the same")
	require.Contains(t, seen, taken)
}
