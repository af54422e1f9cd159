package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/secret"
)

const awkward = "pä$s'w\"o/r+d&<x>\\ %y=~!`z"

func masker(t testing.TB, values ...string) *secret.Masker {
	t.Helper()
	vs := make([]secret.Value, len(values))
	for i, v := range values {
		vs[i] = secret.NewValue(fmt.Sprintf("S%d", i), v)
	}
	m, err := secret.NewMasker(vs...)
	require.NoError(t, err)
	return m
}

func TestMaskerMasksAllForms(t *testing.T) {
	t.Parallel()
	std, web := base64.StdEncoding, base64.RawURLEncoding
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	for _, text := range []string{"hunter2!", awkward, "?>?>?>ÿÿ", strings.Repeat("0123456789abcdef-", 20)} {
		for name, shown := range map[string]string{
			"raw":           text,
			"hex":           hex.EncodeToString([]byte(text)),
			"HEX":           strings.ToUpper(hex.EncodeToString([]byte(text))),
			"query":         url.QueryEscape(text),
			"path":          url.PathEscape(text),
			"query, small":  strings.ToLower(url.QueryEscape(text)),
			"userinfo":      url.UserPassword("u", text).String()[2:],
			"json":          strings.Trim(marshal(text), `"`),
			"json in json":  strings.Trim(marshal(marshal(text)), `"\`),
			"base64":        std.EncodeToString([]byte(text)),
			"base64, raw":   std.WithPadding(base64.NoPadding).EncodeToString([]byte(text)),
			"base64, url":   web.EncodeToString([]byte(text)),
			"single-quoted": strings.ReplaceAll(text, "'", `'\''`),
		} {
			if name == "query, small" && strings.ToLower(text) != text {
				continue
			}
			t.Run(name+" of "+text[:4], func(t *testing.T) {
				t.Parallel()
				m := masker(t, text)
				require.Equal(t, "say ***.", m.String("say "+shown+"."))
				require.True(t, m.Contains("say "+shown+"."))
			})
		}
	}
}

// The characters of base64 that hold bits of the text around the secret too
// are not masked; they hold at most four bits of its first or last byte.
func TestMaskerFindsBase64InsideOfOtherText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"abcd", "hunter2!", "a-longer-one-of-thirty-two-bytes", strings.Repeat("xyz012-", 30)} {
		m := masker(t, text)
		for before := range 7 {
			for after := range 4 {
				plain := strings.Repeat("p", before) + text + strings.Repeat("q", after)
				for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
					shown := enc.EncodeToString([]byte(plain))
					got := m.String("[" + shown + "]")
					require.Contains(t, got, hiddenMark, "%d before, %d after", before, after)
					rest := len(got) - len(hiddenMark) - len("[]")
					around := len(base64.StdEncoding.EncodeToString(make([]byte, before))) + 4 + 4
					require.LessOrEqual(t, rest, around, "%d before, %d after: %s", before, after, got)
					require.Equal(t, 1, strings.Count(got, hiddenMark), "%s", got)
				}
			}
		}
	}
}

const hiddenMark = "***"

func TestMaskerFindsBase64BrokenIntoLines(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range 40 {
		text += fmt.Sprintf("part-%d:", i*i*977)
	}
	m := masker(t, text)
	for _, width := range []int{64, 76} {
		for before := range 8 {
			plain := strings.Repeat("p", before) + text + "\n"
			shown := base64.StdEncoding.EncodeToString([]byte(plain))
			var rows []string
			for len(shown) > width {
				rows, shown = append(rows, shown[:width]), shown[width:]
			}
			rows = append(rows, shown)
			for i, row := range strings.Split(m.String(strings.Join(rows, "\n")), "\n") {
				if i > 0 && i < len(rows)-1 {
					require.Equal(t, hiddenMark, row, "row %d of %d characters, %d before", i, width, before)
				}
			}
		}
	}
}

func TestMaskerMasksLinesOfMultiLineValues(t *testing.T) {
	t.Parallel()
	m := masker(t, "-----BEGIN KEY-----\r\nfirst-line-of-it\n  second-line\n}\n----------\nlast\n")
	require.Equal(t, "a *** b", m.String("a first-line-of-it b"))
	require.Equal(t, "> ***", m.String("> second-line"))
	require.Equal(t, "***", m.String("last"))
	require.Equal(t, "func() {\n}\n----------\n", m.String("func() {\n}\n----------\n"), "lines that are too short or too plain stay")
	require.Empty(t, strings.Trim(m.String("first-line-of-it\n  second-line\n}\n----------\nlast"), "*-}\n "))
}

// Two secrets that overlap in the text are both masked whole.
func TestMaskerMasksOverlaps(t *testing.T) {
	t.Parallel()
	m := masker(t, "abcdef", "defghi", "efgh", "zzabc!")
	require.Equal(t, "-***-", m.String("-abcdefghi-"))
	require.Equal(t, "-***-", m.String("-zzabc!abcdef-"))
	require.Equal(t, "-abcde ***-", m.String("-abcde efgh-"))
}

func TestMaskerLeavesTheRestAlone(t *testing.T) {
	t.Parallel()
	m := masker(t, "hunter2!", "s3cr3t")
	for _, s := range []string{"", "hunter2", "hunter2?", "s3cr3 t", "\x00\xff\xfe\r\n", "hunter", strings.Repeat("hunter2", 50_000)} {
		require.Equal(t, s, m.String(s))
		require.False(t, m.Contains(s))
	}
	var none *secret.Masker
	require.Equal(t, "x", none.String("x"))
	require.False(t, none.Contains("x"))
	none, err := secret.NewMasker()
	require.NoError(t, err)
	require.Equal(t, "x", none.String("x"))
}

func TestMaskerRefusesWhatWouldGarbleTheLog(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "abc", " abc\n", "aaaaaaaa", "    "} {
		_, err := secret.NewMasker(secret.NewValue("GOOD", "hunter2!"), secret.NewValue("BAD", text))
		require.ErrorIs(t, err, secret.ErrTooShort)
		require.ErrorContains(t, err, "BAD")
		require.NotContains(t, err.Error(), "GOOD")
	}
	_, err := secret.NewMasker(secret.NewValue("HUGE", strings.Repeat("ab", 40_000)))
	require.ErrorContains(t, err, "HUGE")
	_, err = secret.NewMasker(secret.NewValue("FOUR", "abcd"))
	require.NoError(t, err, "four characters are enough")
}

func TestMaskWriterIsTheSameHoweverWritesAreSplit(t *testing.T) {
	t.Parallel()
	m := masker(t, "hunter2!", awkward, "line-one\nline-two", strings.Repeat("0123456789abcdef-", 20))
	texts := []string{
		"hunter2!", "hunter", awkward, "line-one\n", "line-one\nline-two", "\n", "plain text, some of it ",
		base64.StdEncoding.EncodeToString([]byte("user:hunter2!")), strings.Repeat("0123456789abcdef-", 20), "0123456789",
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		var all string
		for range r.IntN(12) {
			all += texts[r.IntN(len(texts))]
		}
		var got bytes.Buffer
		w := m.Writer(&got)
		for rest := all; rest != ""; {
			n := min(len(rest), 1+r.IntN(9))
			_, err := w.Write([]byte(rest[:n]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.NoError(t, w.Close())
		require.Equal(t, m.String(all), got.String(), "seed %d", seed)
		require.NotContains(t, got.String(), "hunter2!")
		require.NotContains(t, got.String(), awkward)
	}
}

func TestMaskWriterHoldsBackNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	m := masker(t, "hunter2!")
	var got strings.Builder
	w := m.Writer(&got)
	for _, step := range []struct{ in, shown string }{
		{"a line\n", "a line\n"},
		{"your name? ", "a line\nyour name? "},
		{"hunt", "a line\nyour name? "},
		{"er", "a line\nyour name? "},
		{"s", "a line\nyour name? hunters"},
		{" hunter2!", "a line\nyour name? hunters "},
		{".", "a line\nyour name? hunters ***."},
		{"hunter2", "a line\nyour name? hunters ***."},
	} {
		_, err := w.Write([]byte(step.in))
		require.NoError(t, err)
		require.Equal(t, step.shown, got.String(), "after %q", step.in)
	}
	require.NoError(t, w.Close())
	require.Equal(t, "a line\nyour name? hunters ***.hunter2", got.String())
	require.NoError(t, w.Close())
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestMaskWriterPassesErrorsOn(t *testing.T) {
	t.Parallel()
	m := masker(t, "hunter2!")
	broken := errors.New("broken")
	_, err := m.Writer(failing{broken}).Write([]byte("text"))
	require.ErrorIs(t, err, broken)
}

func BenchmarkMasker(b *testing.B) {
	for _, secrets := range []int{1, 50} {
		values := make([]string, secrets)
		for i := range values {
			values[i] = fmt.Sprintf("ghp_%x", sum(i))
		}
		m := masker(b, values...)
		log := strings.Repeat("2026-01-02T03:04:05Z INFO  compiling package github.com/example/project/internal/ghp_thing [ok] 12.5ms\n", 10_000)
		b.Run(fmt.Sprintf("%d secrets", secrets), func(b *testing.B) {
			b.SetBytes(int64(len(log)))
			w := m.Writer(discard{})
			for b.Loop() {
				for p := []byte(log); len(p) > 0; p = p[min(len(p), 32<<10):] {
					_, err := w.Write(p[:min(len(p), 32<<10)])
					require.NoError(b, err)
				}
			}
		})
	}
	b.Run("build 50", func(b *testing.B) {
		values := make([]secret.Value, 50)
		for i := range values {
			values[i] = secret.NewValue("S", fmt.Sprintf("ghp_%x", sum(i)))
		}
		for b.Loop() {
			_, err := secret.NewMasker(values...)
			require.NoError(b, err)
		}
	})
}

func sum(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	p := make([]byte, 20)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
