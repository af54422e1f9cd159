package container

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPatience holds that each time that an engine is away is borne alone.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p patience
		refused := errors.New("connection refused")
		for range 3 {
			for began := time.Now(); time.Since(began) < awayBound-time.Second; {
				require.NoError(t, p.wait(refused))
			}
			time.Sleep(answerBound + time.Second) // a wait that the engine held open
		}
		var err error
		began := time.Now()
		for err == nil {
			err = p.wait(refused)
		}
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, refused)
		require.Less(t, time.Since(began), awayBound+time.Second)
	})
}
