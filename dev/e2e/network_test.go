package e2e_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/chaos"
	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// A host that is cut off from Temporal ends its steps itself, before Temporal may
// give them to another: no two attempts ever live at once.
func TestAStepEndsOnAHostThatIsCutOff(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	link, err := chaos.NewProxy(env.Temporal.Address())
	require.NoError(t, err)
	t.Cleanup(link.Close)
	env.StartWorkerAt(t, link.Addr(), t.TempDir(), "--labels", "cut")
	mark := seconds(2600)
	counted := filepath.Join(t.TempDir(), "attempts")
	r := env.Run(t, on("cut", `
    steps:
      - name: slow
        grace_period: 1s
        retry: {max_attempts: 2, initial_interval: 1s}
        env: {COUNTED: "`+counted+`"}
        run: |
          echo attempt >>"$COUNTED"
          test "$(grep -c attempt "$COUNTED")" = 1 || exit 0
          echo ready
          sleep `+mark+`
`))
	r.WaitLog("s/slow", "ready")
	require.NotEmpty(t, marked(t, mark))
	require.NoError(t, link.Cut())
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, e2e.Patience, e2e.Patience/1000,
		"the step lives on while its host is cut off")
	require.NoError(t, link.Heal(t.Context()))
	doc := r.Wait()
	node := e2e.Nodes(doc)["s/slow"]
	require.Equal(t, run.Failed, node.Status, "a step that ended for want of Temporal is not tried again by itself")
	require.Equal(t, run.TriggerWorkerLost, node.Cause.Trigger)
}
