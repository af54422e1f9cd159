package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"belay.run/dev/target"
)

const childTarget = "target"

// serveTarget is the process that tasks talk to. It says where it listens.
func serveTarget() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := target.Listen(ctx, 0)
	if err != nil {
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, "ready", l.Addr()); err != nil {
		return 1
	}
	if err := target.Serve(ctx, l, target.After); err != nil {
		return 1
	}
	return 0
}

// address is where a target listens.
func (p *process) address() string { return strings.TrimPrefix(p.said, "ready ") }
