package activities

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseOutputs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want map[string]string
	}{
		"nothing":              {"", map[string]string{}},
		"one":                  {"digest=sha256:1\n", map[string]string{"digest": "sha256:1"}},
		"no newline at end":    {"a=1", map[string]string{"a": "1"}},
		"value with signs":     {"url=http://h/?a=b<<c\n", map[string]string{"url": "http://h/?a=b<<c"}},
		"empty value":          {"a=\n", map[string]string{"a": ""}},
		"several lines":        {"n<<END\none\n\ntwo=2\nEND\nb=2\n", map[string]string{"n": "one\n\ntwo=2", "b": "2"}},
		"the last one counts":  {"a=1\na=2\n", map[string]string{"a": "2"}},
		"windows line endings": {"a=1\r\nb=2\r\n", map[string]string{"a": "1", "b": "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseOutputs([]byte(tc.text))
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	for name, tc := range map[string]struct{ text, want string }{
		"no sign":        {"hello\n", `line 1: "hello" is neither`},
		"no name":        {"ok=1\n=x\n", "line 2"},
		"not ended":      {"n<<END\none\n", `not ended by a line "END"`},
		"no word":        {"n<<\none\n", "not ended"},
		"invalid UTF-8":  {"a=\xff\n", "UTF-8"},
		"a NUL in there": {"a=\x00\n", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseOutputs([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestReadOutputFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	text, err := readOutputFile(filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.Empty(t, text)

	big := filepath.Join(dir, "big")
	require.NoError(t, os.WriteFile(big, []byte(strings.Repeat("x", maxOutputs+1)), 0o600))
	_, err = readOutputFile(big)
	require.ErrorContains(t, err, "65537 bytes")

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("/etc/passwd", link))
	_, err = readOutputFile(link)
	require.ErrorContains(t, err, "no regular file")
}
