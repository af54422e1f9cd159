package activities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
)

func TestMakeSure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		silent  time.Duration
		answers []error
		closed  bool
	}{
		"asks nobody while in touch":              {silent: trustFor - 1},
		"goes on where the attempt is meant":      {silent: trustFor, answers: []error{nil}},
		"waits for an answer":                     {silent: trustFor, answers: []error{errors.New("away"), errors.New("away"), nil}},
		"stops what was given up in the meantime": {silent: time.Minute, answers: []error{errors.New("away"), serviceerror.NewNotFound("gone")}, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				a := &attempt{ctx: ctx, stop: func(e *stopError) { cancel(e) }, heard: time.Now()}
				a.beat = func(context.Context, Progress) error {
					require.NotEmpty(t, c.answers, "asked too often")
					answer := c.answers[0]
					c.answers = c.answers[1:]
					return answer
				}
				time.Sleep(c.silent)
				err := a.makeSure()
				require.Empty(t, c.answers)
				if !c.closed {
					require.NoError(t, err)
					return
				}
				var stop *stopError
				require.ErrorAs(t, err, &stop)
				require.Equal(t, stopClosed, stop.kind)
			})
		})
	}
}

func TestHandedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		require.Equal(t, now, handedOver(time.Time{}), "nobody says when")
		require.Equal(t, now, handedOver(now.Add(time.Hour)), "a clock that is ahead")
		require.Equal(t, now, handedOver(now.Add(-time.Second)))
		require.Equal(t, now.Add(-time.Minute), handedOver(now.Add(-time.Minute)))
	})
}
