package tree_test

import (
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

func TestCleanNeutralisesWhatTerminalsObey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                          "plain",
		"a\tb":                           "a    b",
		"\x1b[31mred\x1b[0m":             "red",
		"\x1b[2J\x1b[Hgone":              "gone",
		"\x1b]0;title\x07text":           "text",
		"\x1b]8;;http://x\x1b\\link":     "link",
		"\x1bPq#0\x1b\\sixel":            "sixel",
		"\x1b[31":                        "",
		"\x1b":                           "",
		"bell\a back\b del\x7f":          "bell\uFFFD back\uFFFD del\uFFFD",
		"c1 \u009b31m":                   "c1 \uFFFD31m",
		"not utf8 \xff\xfe":              "not utf8 \uFFFD\uFFFD",
		"\u202Egnp.exe":                  "\uFFFDgnp.exe",
		"zero\u200Bwidth":                "zero\uFFFDwidth",
		"line\u2028separator":            "line\uFFFDseparator",
		"日本語 é e\u0301 👩\u200D🚀":         "日本語 é e\u0301 👩\u200D🚀",
		"replacement \uFFFD stays":       "replacement \uFFFD stays",
		"\x1bcreset":                     "reset",
		"\x1b\x1b[1mtwo escapes":         "two escapes",
		"\x1b[1;31;48;5;17mcolour\x1b[m": "colour",
	} {
		require.Equal(t, want, tree.Clean(in), "%q", in)
	}
	require.Equal(t, "\x1b[31mred\x1b[0m", tree.CleanKeepingColour("\x1b[31mred\x1b[0m\x1b[2J"))
}

func TestCleanTakesAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		out := tree.Clean(in)
		require.True(t, utf8.ValidString(out))
		require.Equal(t, out, tree.Clean(out), "what is clean stays")
		for _, r := range out {
			require.False(t, r < ' ' || r >= 0x7f && r < 0xa0, "%q", r)
		}
	})
}

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                                "0.0s",
		-time.Second:                     "0.0s",
		449 * time.Millisecond:           "0.4s",
		59*time.Second + 990*1000000:     "59.9s",
		time.Minute + 4*time.Second:      "1m04s",
		59*time.Minute + 59*time.Second:  "59m59s",
		25*time.Hour + 5*time.Minute + 1: "25h05m",
	} {
		require.Equal(t, want, tree.Duration(d))
	}
}

func TestCauseWords(t *testing.T) {
	t.Parallel()
	require.Empty(t, tree.CauseWords(nil, ""))
	for want, c := range map[string]run.Cause{
		"cancelled by ann@desk: wrong tag":     {Trigger: run.TriggerUser, By: "ann@desk", Message: "wrong\ntag\x1b[2J"},
		"cancelled at build/b":                 {Trigger: run.TriggerUser, Source: "build/b"},
		"build/b: step timeout":                {Trigger: run.TriggerStepTimeout, Source: "build/b"},
		"build/b: exit code 3":                 {Trigger: run.TriggerExitCode, Source: "build/b", Message: "exit code 3"},
		"exit code 3":                          {Trigger: run.TriggerExitCode, Source: "build", Message: "exit code 3"},
		"because of test: exit code 3":         {Trigger: run.TriggerDependencyFailed, Source: "test", Message: "exit code 3"},
		"because the run was stopped: Ctrl-C":  {Trigger: run.TriggerDependencyFailed, Message: "Ctrl-C"},
		"the pipeline's timeout of 1s is over": {Trigger: run.TriggerPipelineTimeout, Message: "the pipeline's timeout of 1s is over"},
		"something_new: why":                   {Trigger: "something_new", Message: "why"},
	} {
		require.Equal(t, want, tree.CauseWords(&c, "build"))
	}
}

func TestTailsKeepTheLastLines(t *testing.T) {
	t.Parallel()
	tails := tree.NewTails()
	write := func(attempt int, s string) { tails.Write("a/b", attempt, []byte(s)) }
	require.Empty(t, tails.Last("a/b", 5))
	write(1, "one\ntw")
	write(1, "o\nthr")
	require.Equal(t, []string{"one", "two", "thr"}, tails.Last("a/b", 5))
	require.Equal(t, []string{"two", "thr"}, tails.Last("a/b", 2))
	write(1, "\r10 %\r20 %")
	require.Equal(t, []string{"one", "two", "20 %"}, tails.Last("a/b", 5))
	write(1, "\r")
	write(1, "30 %\r\nlast\n")
	require.Equal(t, []string{"one", "two", "30 %", "last"}, tails.Last("a/b", 5))
	write(2, "again\n")
	require.Equal(t, []string{"again"}, tails.Last("a/b", 5), "an attempt begins anew")
	for range 1000 {
		write(2, "x\ny\n")
	}
	require.Len(t, tails.Last("a/b", 1<<20), 10)
	tails.Prune(&run.Document{Stages: []run.Stage{{Steps: []run.Step{{Node: "a/b", Status: run.Succeeded}}}}})
	require.Empty(t, tails.Last("a/b", 5))
}

func TestTailsAreAsIfWrittenAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab \n\n"))).Draw(t, "text")
		whole, pieces := tree.NewTails(), tree.NewTails()
		whole.Write("n", 1, text)
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			pieces.Write("n", 1, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, whole.Last("n", 10), pieces.Last("n", 10))
	})
}
