package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"belay.run/dev/chaos"
)

// chaosVariable holds what a worker of a drill is told.
const chaosVariable = "BELAY_BENCH_CHAOS"

// chaosWorker is the life of a worker of a drill.
func chaosWorker() int {
	var args chaos.WorkerArgs
	err := json.Unmarshal([]byte(os.Getenv(chaosVariable)), &args)
	if err == nil {
		err = chaos.Worker(context.Background(), args, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker of a drill:", err)
		return 1
	}
	return 0
}

// chaosCommand makes this binary a worker of a drill.
func chaosCommand(ctx context.Context, args chaos.WorkerArgs) (*exec.Cmd, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("encoding what a worker is told: %w", err)
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+childChaos, chaosVariable+"="+string(text))
	return cmd, nil
}

const (
	// drillRequests is how many requests are made in a round: with the warm-up
	// two rounds come to 21,000.
	drillRequests = 7_000
	// peerRequests is how many the published algorithm gets: its faults show
	// soon.
	peerRequests = 1_000
	raceKeys     = 1_000
	raceRacers   = 16 // in each of four processes
)

// race counts executions beyond the first of each key.
func (d *dedupBench) race(published bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		r, err := chaos.Race(ctx, chaos.Options{RedisAddr: d.addr, Published: published, Command: chaosCommand}, raceKeys, raceRacers)
		if err != nil {
			return 0, err
		}
		if r.Missing > 0 {
			return 0, fmt.Errorf("of %d keys %d were never run", r.Keys, r.Missing)
		}
		return float64(r.Doubles), nil
	}
}

// drills holds a drill for each side of a round, and gives the figures of all
// rounds so far: a mistake in one is never forgotten.
type drills struct {
	bench *dedupBench
	sum   map[bool]*chaos.Result
}

// hold holds a drill.
func (d *drills) hold(published bool) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		opts := chaos.Options{RedisAddr: d.bench.addr, Requests: drillRequests, Published: published, Command: chaosCommand}
		if published {
			opts.Requests = peerRequests
		}
		r, err := chaos.Drill(ctx, opts)
		if err != nil {
			return 0, err
		}
		if r.Stale > 0 && !published {
			return 0, fmt.Errorf("%d owners wrote after a takeover: %v", r.Stale, r.Faults)
		}
		if d.sum[published] == nil {
			d.sum[published] = &chaos.Result{}
		}
		d.sum[published].Add(r)
		return d.sum[published].Recall(), nil
	}
}

// precision is the other figure of the drills that were held.
func (d *drills) precision(published bool) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) { return d.sum[published].Precision(), nil }
}
