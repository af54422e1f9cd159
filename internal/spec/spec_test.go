package spec_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

var update = flag.Bool("update", false, "write what is found as what is expected")

// TestInvalid reads each file of testdata/invalid and compares all that is said
// about it with the text file beside it.
func TestInvalid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			file, report := spec.Parse("", text)
			require.Nil(t, file)
			require.NotEmpty(t, report.Errors)
			got := lines("", report.Errors) + lines("warning: ", report.Warnings)
			golden := strings.TrimSuffix(name, ".yaml") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

func lines(kind string, problems []spec.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(kind + p.String() + "\n")
	}
	return b.String()
}
