// Command shop is what examples/light.yaml checks: a small shop, which listens on
// 127.0.0.1 until somebody posts to /stop.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	if err := serve(os.Args[1]); err != nil {
		slog.Error("the shop", "error", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

func serve(port string) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }
	stopped := make(chan struct{})
	var orders atomic.Int64
	mux := http.NewServeMux()
	answer := func(pattern, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			say("%s %s", r.Method, r.URL.Path)
			_, _ = fmt.Fprintln(w, text) // whoever asked may be gone
		})
	}
	answer("GET /health", "the shop is open")
	answer("GET /config", `{"state": "ready", "currency": "EUR"}`)
	answer("POST /statuses", "noted")
	// The first order meets a shop that is not quite awake.
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		n := orders.Add(1)
		say("order %d, idempotency key %.8s…", n, r.Header.Get("Idempotency-Key"))
		if n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { close(stopped) })
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: mux, ReadHeaderTimeout: time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	say("the shop opens on port %s", port)
	select {
	case err := <-failed:
		return err
	case <-stopped:
		say("the shop closes")
		return server.Shutdown(context.Background())
	}
}
