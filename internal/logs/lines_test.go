package logs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
)

func rec(node, text string) logs.Record {
	return logs.Record{Node: node, Attempt: 1, Stream: logs.Stdout, Data: []byte(text)}
}

func lines(t testing.TB, o logs.LineOptions, records ...logs.Record) string {
	t.Helper()
	var b strings.Builder
	l := logs.NewLines(&b, o)
	for _, r := range records {
		require.NoError(t, l.Write(r))
	}
	require.NoError(t, l.Flush())
	return b.String()
}

func TestLinesOfDifferentNodesNeverMix(t *testing.T) {
	t.Parallel()
	second := rec("a", "again\n")
	second.Attempt = 2
	stderr := rec("a", "oops\n")
	stderr.Stream = logs.Stderr
	got := lines(t, logs.LineOptions{Nodes: true},
		rec("a", "one "), rec("b", "two\nthree "), stderr, rec("a", "end\n"), rec("b", ""), rec("b", "end"), second, rec("", "x\n"))
	require.Equal(t, "[b] two\n[a] oops\n[a] one end\n[a #2] again\n[pipeline] x\n[b] three end\n", got)
}

func TestLinesKeepEmptyLinesAndCarriageReturns(t *testing.T) {
	t.Parallel()
	require.Equal(t, "[a] \n[a] x\r\n[a]  1%\r[a]  2%\n",
		lines(t, logs.LineOptions{Nodes: true}, rec("a", "\nx\r"), rec("a", "\n 1%\r 2%\n")))
	require.Equal(t, "\nx\r\n 1%\r 2%\nrest",
		lines(t, logs.LineOptions{}, rec("a", "\nx\r"), rec("a", "\n 1%\r 2%\nrest")), "as it came")
}

func TestLongLinesComeInPieces(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	for n, want := range map[int][]int{size - 1: {size - 1}, size: {size}, size + 1: {size, 1}, 3*size + 7: {size, size, size, 7}} {
		for _, end := range []string{"\n", ""} {
			got := lines(t, logs.LineOptions{Nodes: true}, rec("a", strings.Repeat("x", n)+end))
			var sizes []int
			for line := range strings.Lines(got) {
				sizes = append(sizes, len(line)-len("[a] \n"))
			}
			require.Equal(t, want, sizes)
		}
		require.Len(t, lines(t, logs.LineOptions{}, rec("a", strings.Repeat("x", n))), n)
	}
}

func TestSafeLinesShowOnlyCharactersAndColours(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"plain":               {"a\tb\r\nc", "a\tb\r\nc"},
		"colours":             {"\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mx\x1b[m", "\x1b[1;31mred\x1b[0m \x1b[38:2::1:2:3mx\x1b[m"},
		"cursor and clear":    {"a\x1b[2Jb\x1b[1;1Hc\x1b[?25ld\x1b[6n", "abcd"},
		"private that ends m": {"a\x1b[>4;1mb\x1b[?4mc", "abc"},
		"not a colour":        {"a\x1b[1 mb", "ab"},
		"title":               {"a\x1b]0;evil\x07b\x1b]8;;http://x\x1b\\c", "abc"},
		"title cut short":     {"a\x1b]0;evil\nb", "a\nb"},
		"device control":      {"a\x1bPevil\x1b\\b\x1b_evil\x1b\\c", "abc"},
		"two bytes":           {"a\x1bcb\x1b7c\x1b(0d", "abcd"},
		"control characters":  {"a\x00\x07\x08\x0b\x0c\x7fb", "ab"},
		"C1":                  {"a\u009b2Jb\u0085c\x9b3Jd", "a2Jbc3Jd"},
		"UTF-8":               {"äöü€𝄞\u00a0©", "äöü€𝄞\u00a0©"},
		"not UTF-8":           {"\xff\xfe\xc3(\xe2\x82", "\xff\xfe\xc3(\xe2\x82"},
		"escape before text":  {"a\x1b\nb\x1b[3\nc", "a\nb\nc"},
		"twice escape":        {"a\x1b\x1b[31mb", "a\x1b[31mb"},
		"endless colour":      {"\x1b[" + strings.Repeat("1;", 100) + "mx", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, lines(t, logs.LineOptions{Safe: true}, rec("a", tc.text)))
			pieces := make([]logs.Record, len(tc.text))
			for i := range len(tc.text) {
				pieces[i] = rec("a", tc.text[i:i+1])
			}
			require.Equal(t, tc.want, lines(t, logs.LineOptions{Safe: true}, pieces...), "split after each byte")
			require.Equal(t, tc.text, lines(t, logs.LineOptions{}, pieces...), "not asked for")
		})
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestLinesPassOnErrors(t *testing.T) {
	t.Parallel()
	l := logs.NewLines(brokenWriter{}, logs.LineOptions{Nodes: true})
	require.NoError(t, l.Write(rec("a", "x")))
	require.ErrorIs(t, l.Flush(), errBroken)
	require.ErrorIs(t, l.Write(rec("a", "x\n")), errBroken)
}
