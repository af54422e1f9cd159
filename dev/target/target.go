// Package target is a server for light tasks to talk to: it answers each request
// after a while, or as the request asks.
package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	// After is how long an answer usually takes.
	After = 50 * time.Millisecond
	// most is how long it may be asked to take.
	most = time.Minute
	// headers bounds how long a client takes to ask.
	headers = 10 * time.Second
)

// Listen listens on a port of 127.0.0.1; 0 takes a free one.
func Listen(ctx context.Context, port int) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	return l, nil
}

// Serve answers requests until ctx ends, each after a while: with 200, or as its
// query asks, such as ?after=2s&status=503. It closes l.
func Serve(ctx context.Context, l net.Listener, after time.Duration) error {
	server := &http.Server{ReadHeaderTimeout: headers, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, after)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // what it has not answered is of no use now
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, r *http.Request, after time.Duration) {
	status := http.StatusOK
	if r.URL.RawQuery != "" {
		var wrong string
		if after, status, wrong = asked(r, after); wrong != "" {
			http.Error(w, wrong, http.StatusBadRequest)
			return
		}
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Who has gone hears nothing.
	_, _ = io.WriteString(w, `{"status": `+strconv.Itoa(status)+"}\n")
}

// asked is what a request asks for, or what is wrong with that.
func asked(r *http.Request, usual time.Duration) (after time.Duration, status int, wrong string) {
	after, status = usual, http.StatusOK
	q := r.URL.Query()
	if text := q.Get("after"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > most {
			return 0, 0, "after: want a duration of at most 1m"
		}
		after = d
	}
	if text := q.Get("status"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < http.StatusOK || n > 599 {
			return 0, 0, "status: want 200 to 599"
		}
		status = n
	}
	return after, status, ""
}
