package secret

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// naive masks every place where a pattern matches, by looking at each.
func naive(patterns []string, s string) string {
	secret := make([]bool, len(s))
	for i := range len(s) {
		for _, p := range patterns {
			if strings.HasPrefix(s[i:], p) {
				for j := range len(p) {
					secret[i+j] = true
				}
			}
		}
	}
	var b strings.Builder
	for i := range len(s) {
		switch {
		case !secret[i]:
			b.WriteByte(s[i])
		case i == 0 || !secret[i-1]:
			b.WriteString(hidden)
		}
	}
	return b.String()
}

// FuzzMasker checks that the masker hides just what a slow and obvious one
// does, however the text is split over writes.
func FuzzMasker(f *testing.F) {
	f.Add("hunter2!", "abab\nbaba", "say hunter2! and YWJhYgpiYWJh", uint8(3))
	f.Add("abab", "baab", "ababaababbaabab", uint8(1))
	f.Add("aaab", "\xff\xfe\x00\x01", "aaaaaaaaab\xff\xfe\x00\x01", uint8(2))
	f.Fuzz(func(t *testing.T, one, two, text string, split uint8) {
		m, err := NewMasker(NewValue("ONE", one), NewValue("TWO", two))
		if err != nil || len(one)+len(two) > 100 || len(text) > 300 {
			t.Skip()
		}
		// Text alone would seldom hold a secret.
		text = one + text + two + text + one[:len(one)/2] + text
		var patterns []string
		for _, v := range []string{one, two} {
			patterns = append(patterns, patternsOf(strings.TrimSpace(v))...)
		}
		want := naive(patterns, text)
		require.Equal(t, want, m.String(text))
		require.Equal(t, want != text, m.Contains(text))

		var got strings.Builder
		w := m.Writer(&got)
		for rest := text; rest != ""; {
			n := min(len(rest), 1+int(split)%len(rest))
			_, err := io.WriteString(w, rest[:n])
			require.NoError(t, err)
			rest = rest[n:]
			split = split*5 + 1
		}
		require.NoError(t, w.Close())
		require.Equal(t, want, got.String())
	})
}
