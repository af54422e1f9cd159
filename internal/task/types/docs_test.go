package types_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/task/types"
)

// TestDocsNameAllTypesAndParameters keeps docs/light-types.md in step.
func TestDocsNameAllTypesAndParameters(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/light-types.md")
	require.NoError(t, err)
	sections := strings.Split(string(text), "\n## ")[1:]
	sections = slices.DeleteFunc(sections, func(s string) bool { return s[0] != '`' })
	require.Len(t, sections, len(types.Builtin(types.Tools{}).Types()))
	for _, typ := range types.Builtin(types.Tools{}).Types() {
		var section string
		for _, s := range sections {
			if strings.HasPrefix(s, "`"+typ.Name()+"`") {
				section = s
			}
		}
		require.NotEmpty(t, section, typ.Name())
		require.Equal(t, len(typ.Params()), strings.Count(section, "\n| `"), typ.Name())
		for _, p := range typ.Params() {
			require.Contains(t, section, "\n| `"+p.Name+"` |", typ.Name())
		}
		for _, f := range typ.Outputs() {
			require.Contains(t, section, "`"+f.Name+"`", typ.Name())
		}
	}
}
