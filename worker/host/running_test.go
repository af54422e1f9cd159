package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
)

// activityFunc is an activity behind the interceptor.
type activityFunc struct {
	interceptor.ActivityInboundInterceptorBase

	f func(context.Context) (any, error)
}

func (a *activityFunc) ExecuteActivity(ctx context.Context, _ *interceptor.ExecuteActivityInput) (any, error) {
	return a.f(ctx)
}

func TestRunning(t *testing.T) {
	t.Parallel()
	execute := func(ctx context.Context, r *running, f func(context.Context) (any, error)) (any, error) {
		return r.InterceptActivity(ctx, &activityFunc{f: f}).ExecuteActivity(ctx, &interceptor.ExecuteActivityInput{})
	}

	t.Run("IdleIsDone", func(t *testing.T) {
		t.Parallel()
		left, err := newRunning().wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, left)
	})

	t.Run("PassesResultsThrough", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		got, err := execute(t.Context(), newRunning(), func(context.Context) (any, error) { return 7, boom })
		require.Equal(t, 7, got)
		require.ErrorIs(t, err, boom)
	})

	t.Run("EndsWhatRunsAndWaitsForIt", func(t *testing.T) {
		t.Parallel()
		r := newRunning()
		over := errors.New("over")
		began, release := make(chan struct{}), make(chan struct{})
		cause := make(chan error, 1)
		outer, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		go func() {
			_, _ = execute(outer, r, func(ctx context.Context) (any, error) {
				close(began)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				<-release
				return nil, nil
			})
		}()
		<-began
		r.end(over)
		require.ErrorIs(t, <-cause, over)
		require.NoError(t, outer.Err(), "the SDK's own context goes on: it reports the result with it")

		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		left, err := r.wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, left)
		close(release)
		left, err = r.wait(t.Context())
		require.NoError(t, err)
		require.Zero(t, left)
	})

	t.Run("WhatComesLaterEndsAtOnce", func(t *testing.T) {
		t.Parallel()
		r := newRunning()
		over := errors.New("over")
		r.end(over)
		_, err := execute(t.Context(), r, func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		require.ErrorIs(t, err, over)
	})
}
