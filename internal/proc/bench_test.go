package proc

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkStep is what a step costs beside the same command run by os/exec.
func BenchmarkStep(b *testing.B) {
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, exec.CommandContext(b.Context(), "/bin/true").Run())
		}
	})
	for name, options := range map[string]Options{"cgroup": {}, "no-cgroup": {NoCgroup: true}} {
		b.Run(name, func(b *testing.B) {
			options.StateDir = b.TempDir()
			h, err := New(options)
			require.NoError(b, err)
			for b.Loop() {
				p, err := h.Start(b.Context(), Job{Node: "run/build/true", Argv: []string{"/bin/true"}})
				require.NoError(b, err)
				_, err = p.Wait()
				require.NoError(b, err)
			}
			require.NoError(b, h.Close())
		})
	}
}
