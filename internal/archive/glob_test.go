package archive

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern    string
		yes, no    string
		mayBeIn    string
		maynotBeIn string
	}{
		{"a/b", "a/b", "a a/b/c b/a/b", "a", "b a/b"},
		{"a/*", "a/b a/.c", "a a/b/c", "a", "b"},
		{"a/**", "a a/b a/b/c", "b ab/c", "a a/b a/b/c", "b"},
		{"**/c", "c a/c a/b/c", "a a/b c/d", "a a/b c", ""},
		{"a/**/c", "a/c a/b/c a/b/b/c", "c b/c a/c/d", "a a/b", "b"},
		{"**/b/**/d", "b/d a/b/d a/b/c/c/d b/b/d", "d a/d b a/b", "a x/y", ""},
		{"*.t?t", "x.txt .tat", "a/x.txt x.tx", "", "a"},
		{"**", "a a/b", "", "a a/b", ""},
		{"./a", "a", "b/a", "", "a"},
		{"[a-c]*", "a bx", "d", "", "a"},
	} {
		p, err := compile(tc.pattern)
		require.NoError(t, err)
		split := strings.Fields
		for _, s := range split(tc.yes) {
			require.True(t, p.matches(strings.Split(s, "/"), false), "%s %s", tc.pattern, s)
		}
		for _, s := range split(tc.no) {
			require.False(t, p.matches(strings.Split(s, "/"), false), "%s %s", tc.pattern, s)
		}
		for _, s := range split(tc.mayBeIn) {
			require.True(t, p.mayMatchIn(strings.Split(s, "/")), "%s in %s", tc.pattern, s)
		}
		for _, s := range split(tc.maynotBeIn) {
			require.False(t, p.mayMatchIn(strings.Split(s, "/")), "%s in %s", tc.pattern, s)
		}
	}
}

func TestPatternsWithManyStarsEnd(t *testing.T) {
	t.Parallel()
	p, err := compile(strings.Repeat("**/a/", 50) + "b")
	require.NoError(t, err)
	require.False(t, p.matches(strings.Split(strings.TrimSuffix(strings.Repeat("a/", 2000), "/"), "/"), false))
}
