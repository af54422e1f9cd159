package logs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/redistest"
	"belay.run/internal/store"
)

// following is a Follow that goes on in the background.
type following struct {
	mu   sync.Mutex
	text map[string]string
	done chan struct{}
	err  chan error
}

func follow(t testing.TB, l *logs.Logs, f logs.Filter) *following {
	t.Helper()
	w := &following{text: map[string]string{}, done: make(chan struct{}), err: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		w.err <- l.Follow(ctx, runKey, f, w.done, func(r logs.Record) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.text[fmt.Sprintf("%s#%d", r.Node, r.Attempt)] += string(r.Data)
			return nil
		})
	}()
	return w
}

func (w *following) got(log string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text[log]
}

// end tells that the run is over and waits for the rest.
func (w *following) end(t testing.TB) {
	t.Helper()
	close(w.done)
	require.NoError(t, <-w.err)
}

// everyBackend runs a test on a store alone, with a Redis beside it, with a real
// one, and with one that is a cluster and the store as well.
func everyBackend(t *testing.T, test func(t *testing.T, l *logs.Logs)) {
	t.Helper()
	run := func(name string, open func(t testing.TB) (store.Store, redis.UniversalClient)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, rdb := open(t)
			l := logs.New(st, rdb)
			t.Cleanup(l.Close)
			test(t, l)
		})
	}
	run("store alone", func(t testing.TB) (store.Store, redis.UniversalClient) {
		t.Helper()
		return openStore(t), nil
	})
	run("embedded Redis", func(t testing.TB) (store.Store, redis.UniversalClient) {
		t.Helper()
		rdb := redis.NewClient(&redis.Options{Addr: embedded(t)})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		return openStore(t), rdb
	})
	run("real Redis", func(t testing.TB) (store.Store, redis.UniversalClient) {
		t.Helper()
		return openStore(t), redistest.Start(t).Client(t)
	})
	run("cluster as the store", func(t testing.TB) (store.Store, redis.UniversalClient) {
		t.Helper()
		rdb := redistest.StartCluster(t).Client(t)
		st, err := store.Open(t.Context(), "redis", rdb)
		require.NoError(t, err)
		return st, rdb
	})
}

func TestFollowDeliversEverythingOnceAndInOrder(t *testing.T) {
	t.Parallel()
	everyBackend(t, func(t *testing.T, l *logs.Logs) {
		t.Helper()
		first := openLog(t, l, "a/first", 1, logs.Options{})
		var want strings.Builder
		say := func(w *logs.Writer, s string) {
			write(t, w.Stdout(), s)
		}
		for i := range 1000 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		say(first, want.String())
		closeLog(t, first)

		early := follow(t, l, logs.Filter{})
		waitFor(t, "what was there", func() bool { return early.got("a/first#1") == want.String() })

		second := openLog(t, l, "a/second", 1, logs.Options{})
		say(second, "hello ")
		waitFor(t, "what came later", func() bool { return early.got("a/second#1") == "hello " })
		say(second, "world\n")
		waitFor(t, "what came then", func() bool { return early.got("a/second#1") == "hello world\n" })
		late := follow(t, l, logs.Filter{Node: "a/second"})
		for i := range 3000 {
			say(second, fmt.Sprintf("%d %s\n", i, strings.Repeat("x", 1000)))
		}
		closeLog(t, second)
		retry := openLog(t, l, "a/second", 2, logs.Options{})
		say(retry, "again\n")
		waitFor(t, "the next attempt", func() bool { return late.got("a/second#2") == "again\n" })
		retry.System("cancelled")
		closeLog(t, retry)
		early.end(t)
		late.end(t)

		all := replay(t, l, logs.Filter{})
		for _, w := range []*following{early, late} {
			require.Equal(t, all["a/second#1 stdout"], w.got("a/second#1"))
			require.Equal(t, "again\ncancelled\n", w.got("a/second#2"))
		}
		require.Equal(t, want.String(), early.got("a/first#1"))
		require.Empty(t, late.got("a/first#1"))
	})
}

func TestFollowWithManySteps(t *testing.T) {
	t.Parallel()
	everyBackend(t, func(t *testing.T, l *logs.Logs) {
		t.Helper()
		w := follow(t, l, logs.Filter{})
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				log := openLog(t, l, fmt.Sprintf("s/%d", i), 1, logs.Options{})
				for k := range 50 {
					if _, err := fmt.Fprintf(log.Stdout(), "%d\n", k); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond) // so that they overlap
				}
				if _, err := log.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		w.end(t)
		var want strings.Builder
		for k := range 50 {
			fmt.Fprintf(&want, "%d\n", k)
		}
		for i := range 40 {
			require.Equal(t, want.String(), w.got(fmt.Sprintf("s/%d#1", i)))
		}
	})
}

// A run without logs is followed too, until it is over.
func TestFollowOfNothing(t *testing.T) {
	t.Parallel()
	everyBackend(t, func(t *testing.T, l *logs.Logs) {
		t.Helper()
		w := follow(t, l, logs.Filter{})
		w.end(t)
	})
}

func TestTailInRedisIsBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := logs.New(openStore(t), rdb)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	for range 1000 {
		write(t, w.Stdout(), strings.Repeat("x", 10_000))
	}
	key := "belay:logs:{" + runKey + "}:tail:a/b/1"
	waitFor(t, "the tail", func() bool { return rdb.XLen(t.Context(), key).Val() > 0 })
	require.Greater(t, rdb.TTL(t.Context(), key).Val(), 24*time.Hour, "while it runs")
	closeLog(t, w)
	l.Close()
	entries, err := rdb.XRange(t.Context(), key, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 64)
	for _, e := range entries {
		require.LessOrEqual(t, len(fmt.Sprint(e.Values["d"])), 16<<10)
	}
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{key, "belay:logs:{" + runKey + "}:new"}, keys)
	for _, k := range keys {
		require.Positive(t, rdb.TTL(t.Context(), k).Val())
		require.LessOrEqual(t, rdb.TTL(t.Context(), k).Val(), time.Hour, "after its end")
	}
}

// A Redis that stops answering holds no step back, and readers have the store.
func TestRedisThatHangsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := logs.New(openStore(t), server.Client(t))
	server.Pause(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	reader := follow(t, l, logs.Filter{})
	started := time.Now()
	for range 1000 {
		write(t, w.Stdout(), strings.Repeat("x", 10_000))
	}
	closeLog(t, w)
	waitFor(t, "the reader", func() bool { return len(reader.got("a/b#1")) == 10_000_000 })
	reader.end(t)
	require.Less(t, time.Since(started), time.Minute, "well under what the client's timeouts add up to")
	server.Resume(t)
	require.NotEmpty(t, replay(t, l, logs.Filter{}))
	waitFor(t, "what was under way", func() bool { l.Close(); return true })
}

// A Redis that is lost in between costs promptness only.
func TestRedisThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := logs.New(openStore(t), server.Client(t))
	t.Cleanup(l.Close)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	reader := follow(t, l, logs.Filter{})
	write(t, w.Stdout(), "one ")
	waitFor(t, "one", func() bool { return reader.got("a/b#1") == "one " })
	server.Stop(t)
	write(t, w.Stdout(), "two ")
	waitFor(t, "two", func() bool { return reader.got("a/b#1") == "one two " })
	server.Restart(t)
	rdb := server.Client(t)
	waitFor(t, "the tail again", func() bool {
		write(t, w.Stdout(), "x")
		return rdb.Exists(t.Context(), "belay:logs:{"+runKey+"}:tail:a/b/1").Val() == 1
	})
	write(t, w.Stdout(), " end\n")
	closeLog(t, w)
	reader.end(t)
	require.Equal(t, replay(t, l, logs.Filter{})["a/b#1 stdout"], reader.got("a/b#1"))
}

// writeForever is another process: it writes numbered lines to the store in
// STORE until it is killed, and prints what it has written.
func writeForever() {
	ctx := context.Background()
	st, err := store.Open(ctx, os.Getenv("STORE"), nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	w, err := logs.New(st, nil).Open(ctx, logs.Step{RunKey: runKey, Node: "a/b", Attempt: 1}, logs.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		_, _ = fmt.Fprintf(io.MultiWriter(w.Stdout(), os.Stdout), "line %d\n", i) // ends by a kill
	}
}

// A worker that is killed leaves a log that can be read to where it came.
func TestFollowOfAWorkerThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := "file://" + t.TempDir()
	st, err := store.Open(t.Context(), dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	l := logs.New(st, nil)
	reader := follow(t, l, logs.Filter{})

	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_MAIN=writer", "STORE="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for range 20_000 {
		require.True(t, lines.Scan())
	}
	waitFor(t, "some of it", func() bool { return strings.Contains(reader.got("a/b#1"), "line 10000\n") })
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	reader.end(t)

	got := reader.got("a/b#1")
	require.Equal(t, replay(t, l, logs.Filter{})["a/b#1 stdout"], got)
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		require.True(t, strings.HasPrefix(fmt.Sprintf("line %d", i), line), "line %d is %q", i, line)
	}
}

func embedded(t testing.TB) string {
	t.Helper()
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.Start())
	t.Cleanup(m.Close)
	return m.Addr()
}
