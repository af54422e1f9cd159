package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/temporaltest"

	"belay.run/dev/devcmd"
)

const (
	// childVariable makes this binary one of the processes that are measured.
	childVariable = "BELAY_BENCH_CHILD"
	childDev      = "dev"
	childPeer     = "peer"
	childChaos    = "chaos"

	startPatience = time.Minute
	// idle is how long a process rests before its memory is taken.
	idle = 3 * time.Second
)

// children are the processes that this binary can be: two that are measured,
// which say "ready", and the workers of drills.
func children() map[string]func() int {
	return map[string]func() int{
		childChaos:  chaosWorker,
		childTarget: serveTarget,
		childLoad:   serveLoad,
		childDev: func() int {
			return devcmd.Main(context.Background(),
				[]string{"--port=0", "--ui-port=0", "--redis-port=0", "--http-port=0"}, os.Stdout, os.Stderr)
		},
		childPeer: func() int {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			defer stop()
			server := temporaltest.NewServer()
			server.GetDefaultClient()
			if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
				return 1
			}
			<-ctx.Done()
			return 0
		},
	}
}

// openStart measures how fast dev is ready and how much memory it then takes,
// as a process of its own.
func openStart(context.Context) ([]subject, func() error, error) {
	const peer = "temporaltest: Temporal's own embedded server, alone"
	return []subject{
		{"dev_ready", "ms", peer, readyTime(childDev), readyTime(childPeer)},
		{"dev_memory", "MB", peer, memory(childDev), memory(childPeer)},
	}, nothing, nil
}

func readyTime(child string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		p, err := startChild(ctx, child)
		if err != nil {
			return 0, err
		}
		return milliseconds(p.ready), p.stop()
	}
}

func memory(child string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		p, err := startChild(ctx, child)
		if err != nil {
			return 0, err
		}
		select {
		case <-time.After(idle):
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), p.stop())
		}
		bytes, err := residentTree(p.cmd.Process.Pid)
		return float64(bytes) / 1e6, errors.Join(err, p.stop())
	}
}

// process is a child that is ready.
type process struct {
	cmd   *exec.Cmd
	ready time.Duration // how long that took
	said  string        // the line that said so
}

func startChild(ctx context.Context, child string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), childVariable+"="+child)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", child, err)
	}
	found := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(out)
		said := false
		for lines.Scan() {
			if !said && strings.Contains(lines.Text(), "ready") {
				said = true
				found <- lines.Text()
			}
		}
		if !said {
			found <- ""
		}
	}()
	select {
	case p.said = <-found:
		if p.said == "" {
			return nil, fmt.Errorf("%s ended before it was ready: %w", child, p.cmd.Wait())
		}
	case <-time.After(startPatience):
		return nil, errors.Join(fmt.Errorf("%s is not ready after %s", child, startPatience), p.stop())
	}
	p.ready = time.Since(began)
	return p, nil
}

// stop ends the process in peace.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping a process: %w", err)
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stopping a process: %w", err)
	}
	return nil
}
