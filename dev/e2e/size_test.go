package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

func TestAStageOfAThousandSteps(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\nname: thousand\nstages:\n  - name: s\n    steps:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "      - {name: n%d, uses: noop}\n", i)
	}
	doc := shared.Get(t).Run(t, b.String()).Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Len(t, doc.Stages[0].Steps, 1000)
}

func TestTwoHundredStepsInParallel(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\nname: wide\nstages:\n  - name: s\n    steps:\n      - name: g\n        parallel:\n")
	for i := range 200 {
		fmt.Fprintf(&b, "          - {name: p%d, run: 'echo %d'}\n", i, i)
	}
	r := shared.Get(t).Run(t, b.String())
	doc := r.Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Equal(t, "199\n", r.Log("s/p199"))
}

func TestThreeHundredStages(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("version: 1\nname: stages\nstages:\n")
	for i := range 300 {
		needs := ""
		if i%10 != 0 {
			needs = fmt.Sprintf("needs: [s%d], ", i-1)
		}
		fmt.Fprintf(&b, "  - {name: s%d, %ssteps: [{name: n, uses: noop}]}\n", i, needs)
	}
	doc := shared.Get(t).Run(t, b.String()).Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Len(t, doc.Stages, 300)
	require.Len(t, e2e.Nodes(doc), 601)
}

func TestABurstOfOutputArrivesWhole(t *testing.T) {
	t.Parallel()
	r := shared.Get(t).Run(t, `
version: 1
name: burst
stages:
  - name: s
    steps:
      - {name: burst, run: 'head -c 1000000 /dev/zero | tr "\0" x; printf "\nlast"'}
      - {name: limited, on_failure: ignore, limits: {output: 1KiB}, run: 'head -c 100000 /dev/zero | tr "\0" Y'}
`)
	doc := r.Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Equal(t, strings.Repeat("x", 1_000_000)+"\nlast", r.Log("s/burst"))
	require.Equal(t, 1024, strings.Count(r.Log("s/limited"), "Y"))
	require.Equal(t, run.TriggerLimitExceeded, e2e.Nodes(doc)["s/limited"].Cause.Trigger)
}
