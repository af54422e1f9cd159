package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	childTarget = "target"
	// answersAfter is how long the target takes over each request.
	answersAfter = 50 * time.Millisecond
)

// target is the process that tasks talk to: it answers every request after a
// while. It says where it listens.
func target() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 1
	}
	server := &http.Server{ReadHeaderTimeout: startPatience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(answersAfter):
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // it ends all the same
	if _, err := fmt.Fprintln(os.Stdout, "ready", l.Addr()); err != nil {
		return 1
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return 1
	}
	return 0
}

// address is where a target listens.
func (p *process) address() string { return strings.TrimPrefix(p.said, "ready ") }
