package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/starter/runs"
)

// Scenario is a pipeline file and what is expected of a run of it.
type Scenario struct {
	// Name is the file's without its ending, File its path.
	Name string `json:"-"`
	File string `json:"-"`

	// Inputs are given to the run.
	Inputs map[string]string `json:"inputs,omitempty"`

	// ExitCode is that of `starter run`.
	ExitCode int `json:"exit_code"`

	// Nodes are all nodes of the run, "" for the run itself: one that is
	// missing or not listed fails the scenario.
	Nodes map[string]Expectation `json:"nodes"`
}

// Expectation is what is expected of a node. In a file it may be just the
// state. What is left out is not looked at.
type Expectation struct {
	Status run.Status `json:"status"`
	// Cause is the trigger of the cause, Source where it arose.
	Cause  run.Trigger `json:"cause,omitempty"`
	Source *string     `json:"source,omitempty"`
	// The others are of steps.
	Attempts int               `json:"attempts,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Outputs  map[string]string `json:"outputs,omitempty"`
	// Log are texts that the step's log holds, NotLog such that it does not.
	Log    []string `json:"log,omitempty"`
	NotLog []string `json:"not_log,omitempty"`
}

// UnmarshalJSON reads an expectation or a bare state.
func (e *Expectation) UnmarshalJSON(text []byte) error {
	if json.Unmarshal(text, &e.Status) == nil {
		return nil
	}
	type plain Expectation
	return strict(text, (*plain)(e))
}

// strict refuses unknown keys, so that an expectation with a typo is found.
func strict(text []byte, into any) error {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// Scenarios reads a directory: NN_name.yaml is a pipeline file, NN_name.json
// what is expected of it.
func Scenarios(dir string) ([]Scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	expected, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Scenario
	var errs []error
	for _, file := range files {
		s, err := readScenario(file)
		all, errs = append(all, s), append(errs, err)
	}
	for _, file := range expected {
		if yaml := strings.TrimSuffix(file, ".json") + ".yaml"; !slices.Contains(files, yaml) {
			errs = append(errs, fmt.Errorf("%s has no %s", file, filepath.Base(yaml)))
		}
	}
	return all, errors.Join(errs...)
}

func readScenario(file string) (Scenario, error) {
	base := strings.TrimSuffix(file, ".yaml")
	s := Scenario{Name: filepath.Base(base), File: file}
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		return s, fmt.Errorf("reading what is expected of %s: %w", s.Name, err)
	}
	if err := strict(text, &s); err != nil {
		return s, fmt.Errorf("reading %s.json: %w", base, err)
	}
	if len(s.Nodes) == 0 {
		return s, fmt.Errorf("%s.json expects nothing: it lists no nodes", base)
	}
	return s, nil
}

// Check runs the scenario, compares, and returns the run's document.
func (s Scenario) Check(t *testing.T, e *Env) *run.Document {
	t.Helper()
	var args []string
	for _, name := range slices.Sorted(maps.Keys(s.Inputs)) {
		args = append(args, "-i", name+"="+s.Inputs[name])
	}
	doc, result := e.RunFile(t, s.File, args...)
	defer func() {
		if t.Failed() {
			t.Logf("the run: %s\nstandard error:\n%s", text(doc), result.Stderr)
		}
	}()
	got := Nodes(doc)
	require.Equal(t, statuses(s.Nodes), nodeStatuses(got), "the states of the nodes")
	require.Equal(t, s.ExitCode, result.Code, "the exit code")
	r := e.Follow(t, runs.Ref{ID: doc.ID, RunID: doc.RunID})
	for _, node := range slices.Sorted(maps.Keys(s.Nodes)) {
		s.Nodes[node].check(t, node, got[node], r)
	}
	return doc
}

func (e Expectation) check(t *testing.T, node string, got Node, r *Run) {
	t.Helper()
	if e.Cause != "" {
		require.NotNil(t, got.Cause, "the cause of %q", node)
		require.Equal(t, e.Cause, got.Cause.Trigger, "the cause of %q", node)
	}
	if e.Source != nil {
		require.NotNil(t, got.Cause, "the cause of %q", node)
		require.Equal(t, *e.Source, got.Cause.Source, "the source of the cause of %q", node)
	}
	if e.Attempts != 0 {
		require.Equal(t, e.Attempts, got.Attempts, "the attempts of %q", node)
	}
	if e.ExitCode != nil {
		require.Equal(t, e.ExitCode, got.ExitCode, "the exit code of %q", node)
	}
	if e.Outputs != nil {
		require.Equal(t, e.Outputs, got.Outputs, "the outputs of %q", node)
	}
	if len(e.Log)+len(e.NotLog) == 0 {
		return
	}
	log := r.Log(node)
	for _, want := range e.Log {
		require.Contains(t, log, want, "the log of %q", node)
	}
	for _, unwanted := range e.NotLog {
		require.NotContains(t, log, unwanted, "the log of %q", node)
	}
}

func statuses(nodes map[string]Expectation) map[string]run.Status {
	out := make(map[string]run.Status, len(nodes))
	for node, e := range nodes {
		out[node] = e.Status
	}
	return out
}

func nodeStatuses(nodes map[string]Node) map[string]run.Status {
	out := make(map[string]run.Status, len(nodes))
	for node, n := range nodes {
		out[node] = n.Status
	}
	return out
}
