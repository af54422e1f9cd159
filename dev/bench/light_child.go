package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"belay.run/dev/bench/load"
)

const childLoad = "load"

// serveLoad is the process that a load runs in: it reads what it is to be, and
// says what came of it.
func serveLoad() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var spec load.Spec
	err := json.NewDecoder(os.Stdin).Decode(&spec)
	if err == nil {
		var r load.Result
		if r, err = load.Run(ctx, spec); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(r)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		return 1
	}
	return 0
}

// runLoad puts a load on a target, in a process of its own.
func runLoad(ctx context.Context, spec load.Spec) (load.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return load.Result{}, fmt.Errorf("finding this program: %w", err)
	}
	in, err := json.Marshal(spec)
	if err != nil {
		return load.Result{}, fmt.Errorf("writing what to measure: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+childLoad)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return load.Result{}, fmt.Errorf("measuring %s at %d: %w", spec.Kind, spec.InFlight, err)
	}
	var r load.Result
	if err := json.Unmarshal(out, &r); err != nil {
		return load.Result{}, fmt.Errorf("reading what was measured of %s at %d: %w", spec.Kind, spec.InFlight, err)
	}
	return r, nil
}
