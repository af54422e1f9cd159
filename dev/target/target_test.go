package target_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/dev/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTarget(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	l, err := target.Listen(ctx, 0)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- target.Serve(ctx, l, time.Millisecond) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for query, status := range map[string]int{
		"": 200, "?status=503&after=2ms": 503, "?status=1": 400, "?after=1h": 400, "?after=x": 400,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/hook"+query, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, query)
	}
	stop(nil)
	require.NoError(t, <-ended)
}

func TestTargetSaysThatItsPortIsTaken(t *testing.T) {
	t.Parallel()
	l, err := target.Listen(t.Context(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	_, err = target.Listen(t.Context(), l.Addr().(*net.TCPAddr).Port) //nolint:errcheck,forcetypeassert // TCP it is
	require.ErrorContains(t, err, "listening")
}
