package devcmd

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serveTarget(ctx, 0, time.Millisecond, out) }()
	line := make([]byte, 200)
	n, err := said.Read(line)
	require.NoError(t, err)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(string(line[:n]))
	require.NotEmpty(t, url)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for query, status := range map[string]int{
		"": 200, "?status=503&after=2ms": 503, "?status=1": 400, "?after=1h": 400, "?after=x": 400,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/hook"+query, http.NoBody)
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, query)
	}
	stop(nil)
	require.NoError(t, <-ended)
}
