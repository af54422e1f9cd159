package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

// validFiles are the valid files of the corpus, and the examples.
func validFiles(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"testdata/valid/*.yaml", "../../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		all = append(all, files...)
	}
	return all
}

// TestValid holds that each valid file gives a plan by its defaults alone, and
// that the plan survives the way through a workflow's history.
func TestValid(t *testing.T) {
	t.Parallel()
	for _, name := range validFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			file, report := spec.Parse(name, text)
			require.Empty(t, report.Errors)
			require.Empty(t, report.Warnings)
			require.NoError(t, report.Err())
			plan, err := file.Plan(nil)
			require.NoError(t, err)
			requireSurvives(t, plan)
		})
	}
}

func requireSurvives(t testing.TB, plan *spec.Plan) {
	t.Helper()
	before, err := json.Marshal(plan)
	require.NoError(t, err)
	var back spec.Plan
	require.NoError(t, json.Unmarshal(before, &back))
	after, err := json.Marshal(back)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
	require.Len(t, back.Stages, len(plan.Stages))
	for i := range plan.Stages {
		want, got := plan.Stages[i], back.Stages[i]
		for j := range want.Steps { // with may hold whole numbers, which JSON makes floats
			want.Steps[j].With, got.Steps[j].With = nil, nil
		}
		require.Equal(t, want, got)
	}
}

// TestLineEndings holds that a file of another system, with a byte order mark
// and other line ends, is the same file.
func TestLineEndings(t *testing.T) {
	t.Parallel()
	for _, name := range validFiles(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		want, err := parse(t, string(text)).Plan(nil)
		require.NoError(t, err)
		got, err := parse(t, "\uFEFF"+strings.ReplaceAll(string(text), "\n", "\r\n")).Plan(nil)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		_, want := spec.Parse("", text)
		_, got := spec.Parse("", []byte(strings.ReplaceAll(string(text), "\n", "\r\n")))
		require.Equal(t, lines("", want.Errors), lines("", got.Errors), name)
	}
}
