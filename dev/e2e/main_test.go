package e2e_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
)

var update = flag.Bool("update", false, "record the histories of the scenarios")

// shared is one environment for all tests: they run side by side in it.
var shared = &e2e.Shared{Options: e2e.Options{
	Secrets:  absolute("testdata/secrets"),
	Settings: []string{"--max-processes", "64"},
}}

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// TestScenarios runs pipeline files, compares how each of their nodes ended, and
// replays what the workflows did.
func TestScenarios(t *testing.T) {
	t.Parallel()
	scenarios, err := e2e.Scenarios("scenarios")
	require.NoError(t, err)
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			env := shared.Get(t)
			replay(t, env, s.Name, s.Check(t, env))
		})
	}
}
