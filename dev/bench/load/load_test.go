package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/pause"
)

// TestRecorder holds that only what ends while it counts is counted, and from when
// a task should have begun.
func TestRecorder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		after := func(d time.Duration, err error) runs {
			return func(context.Context) error { time.Sleep(d); return err }
		}
		r.run(t.Context(), time.Now(), after(time.Hour, errors.New("too early to count")))
		require.Equal(t, 1, r.seen())
		r.begin()
		for ms := range 100 {
			r.run(t.Context(), time.Now(), after(time.Duration(ms+1)*time.Millisecond, nil))
		}
		late := time.Now().Add(-time.Second)
		r.run(t.Context(), late, after(0, fmt.Errorf("dialing: %w", syscall.EMFILE)))
		got := r.end(10 * time.Second)
		require.Equal(t, Result{
			Ended: 101, QPS: 10, P50: 51, P99: 100, P999: 100, Errors: 1, NoFiles: 1, Error: "dialing: too many open files", Most: 1,
		}, got)
		r.run(t.Context(), time.Now(), after(0, nil))
		require.Zero(t, (&recorder{}).end(time.Second).P99)
	})
}

// TestShapes holds how many tasks each shape of load has under way.
func TestShapes(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context) error { return pause.For(ctx, 100*time.Millisecond) }
	for name, tc := range map[string]struct {
		begin func(ctx context.Context, rec *recorder)
		ended int
		most  int
	}{
		"callers":  {func(ctx context.Context, rec *recorder) { go repeat(ctx, slow, rec); go repeat(ctx, slow, rec) }, 20, 2},
		"spawned":  {func(ctx context.Context, rec *recorder) { go spawn(ctx, 3, slow, rec) }, 30, 3},
		"arriving": {func(ctx context.Context, rec *recorder) { go arrive(ctx, 1000, slow, rec) }, 1000, 101},
		"guarded":  {func(ctx context.Context, rec *recorder) { go spawn(ctx, 9, guarded(2, slow), rec) }, 20, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancelCause(t.Context())
				var rec recorder
				tc.begin(ctx, &rec)
				time.Sleep(time.Second + time.Microsecond)
				rec.begin()
				time.Sleep(time.Second)
				got := rec.end(time.Second)
				stop(nil)
				synctest.Wait()
				require.InDelta(t, tc.ended, got.Ended, 3)
				require.InDelta(t, tc.most, got.Most, 3)
			})
		})
	}
}

// TestRun puts a small load of each kind that needs no Redis on a target.
func TestRun(t *testing.T) {
	t.Parallel()
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(well.Close)
	ill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(ill.Close)
	for _, kind := range []Kind{Executor, Bare, Threads} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			spec := Spec{Kind: kind, Target: well.URL, InFlight: 3, Threads: 2, Warm: time.Millisecond, For: 200 * time.Millisecond}
			r, err := Run(t.Context(), spec)
			require.NoError(t, err)
			require.Zero(t, r.Errors, r.Error)
			require.Positive(t, r.Memory)
			by, err := open(t.Context(), Spec{Kind: kind, Target: ill.URL, InFlight: 1, Threads: 1})
			require.NoError(t, err)
			require.ErrorContains(t, by.run(t.Context()), "418")
		})
	}
	_, err := Run(t.Context(), Spec{Kind: "nobody"})
	require.EqualError(t, err, `"nobody" runs no tasks`)
}

func TestMachineTime(t *testing.T) {
	t.Parallel()
	busy, all, err := machineTime("cpu  10 1 20 500 30 2 3 4 99 99\ncpu0 1 2 3\n")
	require.NoError(t, err)
	require.InDelta(t, 40.0, busy, 0)
	require.InDelta(t, 570.0, all, 0)
	for _, wrong := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h i"} {
		_, _, err = machineTime(wrong)
		require.ErrorContains(t, err, "/proc/stat", wrong)
	}
}

func TestProcessTime(t *testing.T) {
	t.Parallel()
	took, err := processTime("7 (a (b) c) S 1 1 1 0 -1 4 100 0 0 0 250 50 9 9 20 0 4 0 1 2 3")
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, took)
	for _, wrong := range []string{"", "7 (a) S 1", "7 (a) S 1 1 1 0 -1 4 100 0 0 0 x y"} {
		_, err = processTime(wrong)
		require.ErrorContains(t, err, "reading CPU time", wrong)
	}
}

func TestMostMemory(t *testing.T) {
	t.Parallel()
	bytes, err := mostMemory("Name:\tx\nVmHWM:\t    2048 kB\n")
	require.NoError(t, err)
	require.EqualValues(t, 2<<20, bytes)
	for _, wrong := range []string{"", "VmHWM:\n", "VmHWM: much kB\n"} {
		_, err = mostMemory(wrong)
		require.ErrorContains(t, err, "measuring memory", wrong)
	}
}

func TestCharge(t *testing.T) {
	t.Parallel()
	r := Result{Ended: 100}
	r.charge(spending{}, spending{user: time.Millisecond, system: time.Millisecond, others: time.Millisecond, busy: 3, all: 4}, time.Second)
	require.InDelta(t, 20.0, r.Cost, 0)
	require.InDelta(t, 10.0, r.Others, 0)
	require.InDelta(t, 0.75, r.Busy, 0)
	require.Positive(t, r.System)
}
