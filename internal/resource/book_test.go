package resource_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/internal/pause"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// TestBookOfALedgerThatIsSilent: a Redis that does not answer is waited for once,
// and not for each of many things that are given back.
func TestBookOfALedgerThatIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return nil, errors.Join(pause.For(ctx, 3*time.Second), os.ErrDeadlineExceeded)
		}
		rdb := redis.NewClient(&redis.Options{
			Dialer: silent, ContextTimeoutEnabled: true,
			// It would look its host up, outside the bubble.
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		defer func() { require.NoError(t, rdb.Close()) }()
		records, err := resource.OpenRecords(t.TempDir())
		require.NoError(t, err)
		book := &resource.Book{Records: records, Ledger: resource.NewLedger(rdb), Log: zap.NewNop()}
		began := time.Now()
		for i := range 20 {
			e := entry("run", "build/"+strconv.Itoa(i), 1, "")
			require.NoError(t, book.Note(t.Context(), &e, run.ResourceHeld))
		}
		require.Less(t, time.Since(began), 10*time.Second)
		all, err := records.All()
		require.NoError(t, err)
		require.Len(t, all, 20)

		time.Sleep(time.Minute)
		began = time.Now()
		e := entry("run", "build/again", 1, "")
		require.NoError(t, book.Note(t.Context(), &e, run.ResourceHeld))
		require.Positive(t, time.Since(began), "it is asked again")
		time.Sleep(time.Minute) // the client's own tries end
	})
}
