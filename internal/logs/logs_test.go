package logs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/logs"
	"belay.run/internal/redistest"
	"belay.run/internal/store"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_MAIN") == "writer" {
		writeForever()
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}

const runKey = "0198c0de-0000-7000-8000-000000000000"

func openStore(t testing.TB) store.Store {
	t.Helper()
	st, err := store.Open(context.WithoutCancel(t.Context()), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func newLogs(t testing.TB) *logs.Logs {
	t.Helper()
	return logs.New(openStore(t), nil)
}

func openLog(t testing.TB, l *logs.Logs, node string, attempt int, o logs.Options) *logs.Writer {
	t.Helper()
	w, err := l.Open(t.Context(), logs.Step{RunKey: runKey, Node: node, Attempt: attempt}, o)
	require.NoError(t, err)
	return w
}

func closeLog(t testing.TB, w *logs.Writer) logs.Summary {
	t.Helper()
	s, err := w.Close(t.Context())
	require.NoError(t, err)
	return s
}

// replay is everything there is, by node and stream.
func replay(t testing.TB, l *logs.Logs, f logs.Filter) map[string]string {
	t.Helper()
	got := map[string]string{}
	require.NoError(t, l.Replay(t.Context(), runKey, f, func(r logs.Record) error {
		got[fmt.Sprintf("%s#%d %s", r.Node, r.Attempt, r.Stream)] += string(r.Data)
		return nil
	}))
	return got
}

func TestBytesAreKeptExactly(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"last line without newline": "one\ntwo",
		"progress bar":              "\r 10%\r 20%\r100%\n",
		"not UTF-8":                 "\xff\xfe\x00\xc3(\x80",
		"a line of 1 MB":            strings.Repeat("x", 1<<20) + "\n",
		"empty lines":               "\n\n\r\n",
		"looks like a log":          "belay log 1\nBE\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogs(t)
			w := openLog(t, l, "build/compile", 1, logs.Options{})
			for rest := text; rest != ""; {
				n := min(len(rest), 1+rand.IntN(40_000))
				k, err := io.WriteString(w.Stdout(), rest[:n])
				require.NoError(t, err)
				require.Equal(t, n, k)
				rest = rest[n:]
			}
			require.Equal(t, logs.Summary{Bytes: int64(len(text))}, closeLog(t, w))
			require.Equal(t, map[string]string{"build/compile#1 stdout": text}, replay(t, l, logs.Filter{}))
		})
	}
}

func TestStreamsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	var want strings.Builder
	for i := range 100 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
		_, err := fmt.Fprintf(w.Stdout(), "out %d\n", i)
		require.NoError(t, err)
		_, err = fmt.Fprintf(w.Stderr(), "err %d\n", i)
		require.NoError(t, err)
	}
	w.System("cancelled by ann")
	closeLog(t, w)
	var got strings.Builder
	var last time.Time
	require.NoError(t, l.Replay(t.Context(), runKey, logs.Filter{}, func(r logs.Record) error {
		require.False(t, r.Time.Before(last))
		last = r.Time
		got.Write(r.Data)
		return nil
	}))
	require.Equal(t, want.String()+"cancelled by ann\n", got.String())
	require.WithinDuration(t, time.Now(), last, time.Minute)
}

func TestReplayMergesNodesByTime(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	var ws []*logs.Writer
	for i := range 5 {
		ws = append(ws, openLog(t, l, fmt.Sprintf("s%d/x", i), 1, logs.Options{}))
	}
	for round := range 20 {
		for i, w := range ws {
			_, err := fmt.Fprintf(w.Stdout(), "%d.%d ", round, i)
			require.NoError(t, err)
			time.Sleep(10 * time.Microsecond) // so that times differ
		}
		time.Sleep(6 * time.Millisecond) // so that records do
	}
	for _, w := range ws {
		closeLog(t, w)
	}
	var want, got strings.Builder
	for round := range 20 {
		for i := range ws {
			fmt.Fprintf(&want, "%d.%d ", round, i)
		}
	}
	require.NoError(t, l.Replay(t.Context(), runKey, logs.Filter{}, func(r logs.Record) error {
		got.Write(r.Data)
		return nil
	}))
	require.Equal(t, want.String(), got.String())
}

func TestFilterSelects(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	long := "deploy[" + strings.Repeat("k=v,", 150) + "z=a%2Fb]"
	for _, s := range []logs.Step{
		{Node: "build/compile", Attempt: 1},
		{Node: "build/compile", Attempt: 2},
		{Node: "build", Attempt: 1},
		{Node: "build-linux/compile", Attempt: 1},
		{Node: "build[os=mac]/compile", Attempt: 1},
		{Node: long + "/x y", Attempt: 12},
		{Node: "", Attempt: 1},
	} {
		w := openLog(t, l, s.Node, s.Attempt, logs.Options{})
		w.System("x")
		closeLog(t, w)
	}
	for _, tc := range []struct {
		filter logs.Filter
		want   []string
	}{
		{logs.Filter{Node: "build"}, []string{"build#1", "build/compile#1", "build/compile#2", "build[os=mac]/compile#1"}},
		{logs.Filter{Node: "build", Attempt: 2}, []string{"build/compile#2"}},
		{logs.Filter{Node: "build/comp"}, nil},
		{logs.Filter{Node: "deploy"}, []string{long + "/x y#12"}},
		{logs.Filter{Node: long}, []string{long + "/x y#12"}},
		{logs.Filter{Attempt: 12}, []string{long + "/x y#12"}},
		{logs.Filter{}, []string{
			"#1", "build#1", "build-linux/compile#1", "build/compile#1", "build/compile#2", "build[os=mac]/compile#1", long + "/x y#12",
		}},
	} {
		sources, err := l.Sources(t.Context(), runKey, tc.filter)
		require.NoError(t, err)
		var got []string
		for _, s := range sources {
			got = append(got, fmt.Sprintf("%s#%d", s.Node, s.Attempt))
			require.Positive(t, s.Size)
		}
		require.Equal(t, tc.want, got, "%+v", tc.filter)
		require.Len(t, replay(t, l, tc.filter), len(tc.want))
	}
	sources, err := l.Sources(t.Context(), "another-run", logs.Filter{})
	require.NoError(t, err)
	require.Empty(t, sources)
	require.Error(t, l.Replay(t.Context(), "a/b", logs.Filter{}, nil))
	_, err = l.Open(t.Context(), logs.Step{RunKey: runKey, Node: "x"}, logs.Options{})
	require.ErrorContains(t, err, "attempts count from 1")
}

func TestLimitDropsAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	w := openLog(t, l, "a/b", 1, logs.Options{Limit: 1000})
	for range 30 {
		_, err := io.WriteString(w.Stdout(), strings.Repeat("x", 99)+"\n")
		require.NoError(t, err)
	}
	w.System("exit code 1")
	require.Equal(t, logs.Summary{Bytes: 3000, Dropped: 2000}, closeLog(t, w))
	got := replay(t, l, logs.Filter{})
	require.Equal(t, strings.Repeat(strings.Repeat("x", 99)+"\n", 10), got["a/b#1 stdout"])
	require.Equal(t, "output limit of 1000 bytes reached: what follows is dropped\n"+
		"exit code 1\n2000 bytes of output dropped: they are over the limit of 1000 bytes\n", got["a/b#1 system"])
}

func TestTailIsForErrorMessages(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	for name, tc := range map[string]struct{ text, want string }{
		"empty":       {"", ""},
		"short":       {"a\nb\n", "a\nb"},
		"many lines":  {strings.Repeat("line\n", 100), strings.TrimSuffix(strings.Repeat("line\n", 20), "\n")},
		"long line":   {strings.Repeat("x", 10_000), strings.Repeat("x", 4096)},
		"whole lines": {strings.Repeat("y", 5000) + "\nlast\n", "last"},
		"not UTF-8":   {"a\xffb", "a\uFFFDb"},
		"characters":  {strings.Repeat("ä", 3000) + "x", strings.Repeat("ä", 2047) + "x"},
	} {
		w := openLog(t, l, "a/"+name, 1, logs.Options{})
		for i := range len(tc.text) {
			_, err := w.Stdout().Write([]byte{tc.text[i]})
			require.NoError(t, err)
		}
		require.Equal(t, tc.want, string(w.Tail()), name)
		closeLog(t, w)
	}
}

// An attempt that is begun again after its worker was lost keeps what the
// worker that was lost had written, and what it still writes.
func TestAttemptsCanBeBegunAgain(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	lost := openLog(t, l, "a/b", 1, logs.Options{})
	_, err := io.WriteString(lost.Stdout(), "first\n")
	require.NoError(t, err)
	again := openLog(t, l, "a/b", 1, logs.Options{})
	_, err = io.WriteString(again.Stdout(), "second\n")
	require.NoError(t, err)
	closeLog(t, again)
	closeLog(t, lost)
	got := replay(t, l, logs.Filter{})["a/b#1 stdout"]
	require.Equal(t, "first\nsecond\n", got)
	sources, err := l.Sources(t.Context(), runKey, logs.Filter{})
	require.NoError(t, err)
	require.Len(t, sources, 1)
}

// A worker that was killed in the middle of a record leaves a torn end.
func TestTornEndIsIgnored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), "file://"+dir, nil)
	require.NoError(t, err)
	l := logs.New(st, nil)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	_, err = io.WriteString(w.Stdout(), "kept\n")
	require.NoError(t, err)
	time.Sleep(6 * time.Millisecond) // another record
	_, err = io.WriteString(w.Stdout(), "torn\n")
	require.NoError(t, err)
	closeLog(t, w)
	file := filepath.Join(dir, "logs", runKey, "a", "b", "1.obj")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for cut := 1; cut < 30; cut++ {
		end := len(whole) - cut
		require.NoError(t, os.WriteFile(file, whole[:end], 0o600))
		require.Contains(t, []string{"kept\ntorn\n", "kept\n"}, replay(t, l, logs.Filter{})["a/b#1 stdout"], "cut by %d", cut)
		require.NoError(t, os.WriteFile(file, append(bytes.Clone(whole[:end]), make([]byte, 100)...), 0o600))
		require.Contains(t, []string{"kept\ntorn\n", "kept\n"}, replay(t, l, logs.Filter{})["a/b#1 stdout"], "zeros after %d", cut)
	}
	require.Equal(t, "kept\n", replay(t, l, logs.Filter{})["a/b#1 stdout"])
	require.NoError(t, st.Close())
}

// A step cannot forge records of Belay's own, nor of another time.
func TestOutputCannotForgeRecords(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	w.System("genuine")
	closeLog(t, w)
	dir := openStore(t)
	other := logs.New(dir, nil)
	w = openLog(t, other, "a/b", 1, logs.Options{})
	w.System("forged")
	closeLog(t, w)
	forged, err := dir.Get(t.Context(), "logs/"+runKey+"/a/b/1")
	require.NoError(t, err)
	bytes, err := io.ReadAll(forged)
	require.NoError(t, err)
	require.NoError(t, forged.Close())
	w = openLog(t, l, "a/b", 2, logs.Options{})
	_, err = w.Stdout().Write(append([]byte(strings.Repeat("x", 100_000)), bytes...))
	require.NoError(t, err)
	closeLog(t, w)
	records, err := l.Last(t.Context(), runKey, "a/b", len(bytes)+10)
	require.NoError(t, err)
	for _, r := range records {
		require.Equal(t, logs.Stdout, r.Stream)
	}
}

func TestLastIsTheEndOfTheNewestAttempt(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	for attempt := range 3 {
		w := openLog(t, l, "a/b", attempt+1, logs.Options{})
		for i := range 5000 {
			_, err := fmt.Fprintf(w.Stdout(), "attempt %d line %d\n", attempt+1, i)
			require.NoError(t, err)
		}
		closeLog(t, w)
	}
	w := openLog(t, l, "a/b/deeper", 7, logs.Options{})
	w.System("not this one")
	closeLog(t, w)
	for _, size := range []int{0, 1, 30, 5000, 100_000, 10 << 20, -1} {
		records, err := l.Last(t.Context(), runKey, "a/b", size)
		require.NoError(t, err)
		var got string
		for _, r := range records {
			got += string(r.Data)
		}
		all := replay(t, l, logs.Filter{Node: "a/b", Attempt: 3})["a/b#3 stdout"]
		require.Equal(t, all[len(all)-min(max(size, 0), len(all)):], got, "%d bytes", size)
	}
	none, err := l.Last(t.Context(), runKey, "a/c", 100)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestReplayPassesOnErrors(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	w.System("x")
	closeLog(t, w)
	broken := errors.New("broken")
	require.Equal(t, broken, l.Replay(t.Context(), runKey, logs.Filter{}, func(logs.Record) error { return broken }))
	require.Equal(t, broken, l.Follow(t.Context(), runKey, logs.Filter{}, nil, func(logs.Record) error { return broken }))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	require.ErrorIs(t, l.Replay(ctx, runKey, logs.Filter{}, func(logs.Record) error { return nil }), broken)
	require.ErrorIs(t, l.Follow(ctx, runKey, logs.Filter{}, nil, func(logs.Record) error { return nil }), broken)
}

// Thousands of logs that all go on at once are merged without as many open
// files or buffers.
func TestReplayMergesThousandsOfLogs(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	const n = 1000
	var group sync.WaitGroup
	for part := range 8 {
		group.Go(func() {
			for i := part; i < n; i += 8 {
				w, err := l.Open(t.Context(), logs.Step{RunKey: runKey, Node: fmt.Sprintf("s/%d", i), Attempt: 1}, logs.Options{})
				if err == nil {
					_, err = io.WriteString(w.Stdout(), strings.Repeat("x", 20_000))
				}
				if err == nil {
					_, err = w.Close(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	bytes := map[string]int{}
	require.NoError(t, l.Replay(t.Context(), runKey, logs.Filter{}, func(r logs.Record) error {
		bytes[r.Node] += len(r.Data)
		return nil
	}))
	require.Len(t, bytes, n)
	for node, size := range bytes {
		require.Equal(t, 20_000, size, node)
	}
}
