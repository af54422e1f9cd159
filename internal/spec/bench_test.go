package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

// large is a file of so many steps in two stages, each with what a usual step
// has.
func large(steps int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\nname: large\ninputs:\n  tag: {type: string, default: v1}\nstages:\n")
	for s := range 2 {
		fmt.Fprintf(&b, "  - name: stage-%d\n    steps:\n", s)
		for i := range steps / 2 {
			fmt.Fprintf(&b, `      - name: step-%d
        env: {TAG: "${{ inputs.tag }}-%d", KIND: plain}
        when: inputs.tag != "v%d"
        run: |
          echo "building $TAG"
          make -j2 "target-%d"
        timeout: 5m
        retry: {max_attempts: 3, initial_interval: 1s}
        outputs: [digest]
`, i, i, i, i)
		}
	}
	return []byte(b.String())
}

// BenchmarkParse reads and checks a file of 2,000 steps.
func BenchmarkParse(b *testing.B) {
	text := large(2000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_, report := spec.Parse("large.yaml", text)
		require.Empty(b, report.Errors)
	}
}
