package types_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/task"
)

// A target that closes a kept connection in place of an answer is asked again by
// net/http, also with a POST. It has the request twice, which is to be said.
func TestHTTPSaysThatItAskedAgain(t *testing.T) {
	t.Parallel()
	var conns, asked atomic.Int32
	addr := speak(t, func(c net.Conn) {
		conns.Add(1)
		for r, n := bufio.NewReader(c), 0; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body) // it is short
			asked.Add(1)
			if n == 1 {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	b := setup(t)
	// Each run is of a job that a connection was kept for, but for the first.
	for i, want := range []bool{false, true, true} {
		var again atomic.Bool
		job := b.job(t, "http", with{"url": "http://" + addr, "body": "x"})
		_, err := job.Run(task.NoteAgain(t.Context(), &again), task.Origin{IdempotencyKey: "k"})
		require.NoError(t, err)
		require.Equal(t, want, again.Load(), "run %d", i)
	}
	require.EqualValues(t, 5, asked.Load())
	require.EqualValues(t, 3, conns.Load())
}

// A redirect is a request of its own, also to where the first went.
func TestARedirectIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", http.StatusTemporaryRedirect)
		}
	})
	var again atomic.Bool
	_, err := setup(t).job(t, "http", with{"url": url, "body": "x"}).Run(task.NoteAgain(t.Context(), &again), task.Origin{IdempotencyKey: "k"})
	require.NoError(t, err)
	require.False(t, again.Load())
}
