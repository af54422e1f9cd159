package logs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/store"
)

// faulty is a store whose appends can be made to fail or hang.
type faulty struct {
	store.Store

	mu   sync.Mutex
	fail error
	hang chan struct{}
	// appends counts those that were tried.
	appends atomic.Int64
}

func (s *faulty) set(fail error, hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.hang = fail, hang
}

func (s *faulty) Append(ctx context.Context, key string, off int64, p []byte) error {
	s.appends.Add(1)
	s.mu.Lock()
	fail, hang := s.fail, s.hang
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if fail != nil {
		return fail
	}
	return s.Store.Append(ctx, key, off, p)
}

func newFaulty(t testing.TB) (*faulty, *logs.Logs) {
	t.Helper()
	st := &faulty{Store: openStore(t)}
	return st, logs.New(st, nil)
}

func write(t testing.TB, w io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, 2*time.Millisecond, what)
}

// A full disk ends no step: its output is drained, counted, and reported.
func TestFullStoreIsReportedNotFatal(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	write(t, w.Stdout(), "before\n")
	waitFor(t, "the first flush", func() bool { return st.appends.Load() == 2 })
	st.set(fmt.Errorf("store /srv: %w", store.ErrFull), nil)
	for range 100 {
		write(t, w.Stdout(), strings.Repeat("x", 100_000))
	}
	s, err := w.Close(t.Context())
	require.ErrorIs(t, err, store.ErrFull)
	require.ErrorContains(t, err, "log of a/b: 10000000 bytes of output lost: store /srv")
	require.Equal(t, logs.Summary{Bytes: 10_000_007, Dropped: 10_000_000}, s)
	require.Equal(t, map[string]string{"a/b#1 stdout": "before\n"}, replay(t, l, logs.Filter{}))
	_, err = w.Close(t.Context())
	require.ErrorIs(t, err, store.ErrFull, "closed twice")
}

// When there is room again the log goes on, and says what it lacks.
func TestStoreThatComesBackIsUsedAgain(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	st.set(store.ErrFull, nil)
	write(t, w.Stdout(), "lost!\n")
	waitFor(t, "a flush that fails", func() bool { return st.appends.Load() == 2 })
	st.set(nil, nil)
	write(t, w.Stderr(), "after\n")
	s, err := w.Close(t.Context())
	require.ErrorIs(t, err, store.ErrFull)
	require.Equal(t, logs.Summary{Bytes: 12, Dropped: 6}, s)
	require.Equal(t, map[string]string{
		"a/b#1 system": "6 bytes of output lost here: the store is full\n",
		"a/b#1 stderr": "after\n",
	}, replay(t, l, logs.Filter{}))
}

// TestLogThatCannotBeOpened keeps no step from running: nothing of it is in the
// log, and the end says so.
func TestLogThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text    string
		dropped int64
		want    string
	}{
		"a step that prints": {"lost\n", 5, "the log of a/b could not be opened, 5 bytes of output lost: the store is full"},
		"a quiet step":       {"", 0, "the log of a/b could not be opened, 0 bytes of output lost: the store is full"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, l := newFaulty(t)
			st.set(store.ErrFull, nil)
			w := openLog(t, l, "a/b", 1, logs.Options{})
			write(t, w.Stdout(), tc.text)
			s, err := w.Close(t.Context())
			require.ErrorIs(t, err, store.ErrFull)
			require.EqualError(t, err, tc.want)
			require.Equal(t, logs.Summary{Bytes: tc.dropped, Dropped: tc.dropped}, s)
			require.Empty(t, replay(t, l, logs.Filter{}))
		})
	}
}

// TestLogIsOpenedLater begins the log as soon as there is room. A step that had
// printed nothing until then has lost nothing.
func TestLogIsOpenedLater(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	st.set(store.ErrFull, nil)
	late, quiet := openLog(t, l, "a/late", 1, logs.Options{}), openLog(t, l, "a/quiet", 1, logs.Options{})
	write(t, late.Stdout(), "lost!\n")
	waitFor(t, "a flush that fails", func() bool { return st.appends.Load() == 3 })
	st.set(nil, nil)
	write(t, late.Stdout(), "after\n")
	write(t, quiet.Stdout(), "all\n")
	s, err := late.Close(t.Context())
	require.EqualError(t, err, "log of a/late: 6 bytes of output lost: the store is full")
	require.Equal(t, logs.Summary{Bytes: 12, Dropped: 6}, s)
	require.Equal(t, logs.Summary{Bytes: 4}, closeLog(t, quiet))
	require.Equal(t, map[string]string{
		"a/late#1 system":  "6 bytes of output lost here: the store is full\n",
		"a/late#1 stdout":  "after\n",
		"a/quiet#1 stdout": "all\n",
	}, replay(t, l, logs.Filter{}))
}

// TestOpenEndsWithItsContext is no open: whoever asked does not want the log any
// more.
func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	st.set(nil, make(chan struct{}))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("cancelled"))
	_, err := l.Open(ctx, logs.Step{RunKey: runKey, Node: "a/b", Attempt: 1}, logs.Options{})
	require.EqualError(t, err, "opening the log of a/b: cancelled")
}

// A store that is slower than the step makes the step wait: nothing is lost and
// little is held.
func TestSlowStoreHoldsTheStepBack(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	hang := make(chan struct{})
	st.set(nil, hang)
	var written atomic.Int64
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for range 400 {
			n, err := w.Stdout().Write(make([]byte, 10_000))
			if err != nil {
				t.Error(err)
			}
			written.Add(int64(n))
		}
	}()
	var before int64 = -1
	waitFor(t, "the writer to be held back", func() bool {
		now := written.Load()
		stuck := now == before && now > 0
		before = now
		return stuck
	})
	require.LessOrEqual(t, written.Load(), int64(2<<20), "more is held than should be")
	close(hang)
	<-wrote
	require.Equal(t, logs.Summary{Bytes: 4_000_000}, closeLog(t, w))
	require.Len(t, replay(t, l, logs.Filter{})["a/b#1 stdout"], 4_000_000)
}

// A store that never answers holds the step back for a while only.
func TestHangingStoreIsGivenUp(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	w := openLog(t, l, "a/b", 1, logs.Options{Stall: 50 * time.Millisecond})
	st.set(nil, make(chan struct{}))
	for range 400 {
		write(t, w.Stdout(), strings.Repeat("x", 10_000))
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("time is up"))
	defer cancel()
	s, err := w.Close(ctx)
	require.ErrorContains(t, err, "log of a/b: 4000000 bytes of output lost")
	require.ErrorContains(t, err, "time is up")
	require.Equal(t, logs.Summary{Bytes: 4_000_000, Dropped: 4_000_000}, s)
	_, err = w.Stdout().Write([]byte("late"))
	require.ErrorIs(t, err, logs.ErrClosed)
}

// TestHangingStoreIsNotWaitedForAtTheBegin lets the step begin.
func TestHangingStoreIsNotWaitedForAtTheBegin(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	hang := make(chan struct{})
	st.set(nil, hang)
	w := openLog(t, l, "a/b", 1, logs.Options{Stall: 50 * time.Millisecond})
	close(hang)
	write(t, w.Stdout(), "kept\n")
	require.Equal(t, logs.Summary{Bytes: 5}, closeLog(t, w))
	require.Equal(t, map[string]string{"a/b#1 stdout": "kept\n"}, replay(t, l, logs.Filter{}))
}

// A log that somebody removes or writes to goes on in another part.
func TestLogThatIsRemovedGoesOn(t *testing.T) {
	t.Parallel()
	st, l := newFaulty(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	write(t, w.Stdout(), "gone\n")
	waitFor(t, "the first flush", func() bool { return st.appends.Load() == 2 })
	require.NoError(t, l.Remove(t.Context(), runKey))
	write(t, w.Stdout(), "kept\n")
	closeLog(t, w)
	require.Equal(t, map[string]string{"a/b#1 stdout": "kept\n"}, replay(t, l, logs.Filter{}))
}

func TestConcurrentWritersOfOneStep(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	w := openLog(t, l, "a/b", 1, logs.Options{})
	var group sync.WaitGroup
	for range 4 {
		for _, to := range []io.Writer{w.Stdout(), w.Stderr()} {
			group.Go(func() {
				for range 100 {
					if _, err := to.Write(make([]byte, 5000)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Go(func() { w.System("hello"); _ = w.Tail() })
	}
	group.Wait()
	closeLog(t, w)
	got := replay(t, l, logs.Filter{})
	require.Len(t, got["a/b#1 stdout"], 2_000_000)
	require.Len(t, got["a/b#1 stderr"], 2_000_000)
	require.Equal(t, strings.Repeat("hello\n", 4), got["a/b#1 system"])
}
