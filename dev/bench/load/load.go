// Package load puts light tasks on a target, by Belay's executor or by what does
// the same without it, and measures what comes of it: how many end, how long they
// take, and what that costs. It is meant to run in a process of its own, so that
// what it costs is the cost of the one that is measured.
package load

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"belay.run/internal/pause"
)

// Kind is what runs the tasks.
type Kind string

// The kinds.
const (
	// Executor is that of Belay with all that it has but keys: limits, buckets,
	// circuit breaker, metrics, whom each task is for.
	Executor Kind = "executor"
	// Keyed is the same with a key for each task, claimed and settled in Redis.
	Keyed Kind = "executor, dedup"
	// Bare is a goroutine for each task, and a semaphore.
	Bare Kind = "bare loop"
	// Threads is a pool of threads of the operating system.
	Threads Kind = "threads"
	// Asynq is github.com/hibiken/asynq, which keeps its tasks in Redis.
	Asynq Kind = "asynq"
)

// Spec is one load.
type Spec struct {
	Kind Kind `json:"kind"`
	// Target is the URL that is asked, Redis the address of a server.
	Target string `json:"target"`
	Redis  string `json:"redis"`
	// InFlight is how many tasks are under way at once: that many callers, each of
	// whom has its next task run when the last has ended. With a Rate, it is how
	// many may be.
	InFlight int `json:"in_flight"`
	// Threads is how many threads a pool has.
	Threads int `json:"threads,omitempty"`
	// Rate is how many tasks come in a second, whether or not others have ended.
	// How long a task takes counts from when it should have come.
	Rate float64 `json:"rate,omitempty"`
	// Warm is how long the load lasts before it counts, For how long it then does.
	Warm time.Duration `json:"warm"`
	For  time.Duration `json:"for"`
	// Waiting has so many tasks wait behind one that does not end, in the place of
	// all this.
	Waiting int `json:"waiting,omitempty"`
	// Files is how many files the process may open; 0: as many as it may.
	Files uint64 `json:"files,omitempty"`
	// Others are processes whose CPU time the load costs too, such as the target's.
	Others []int `json:"others,omitempty"`
}

// Result is what came of a load. Times are in milliseconds.
type Result struct {
	// Ended is how many tasks ended while it counted, QPS that in a second.
	Ended int     `json:"ended"`
	QPS   float64 `json:"qps"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	// Errors is how many of them failed, NoFiles how many of those as there were
	// too many open files, Error the first.
	Errors  int    `json:"errors"`
	NoFiles int    `json:"no_files"`
	Error   string `json:"error,omitempty"`
	// Most is how many were in flight at once.
	Most int `json:"most_in_flight"`
	// Cap is how many tasks the executor lets run at once in the end, 0 where
	// there is none.
	Cap int `json:"cap,omitempty"`
	// System is the part of the machine that the kernel took for this process,
	// Busy the part that was taken by all, both from 0 to 1; Cost is how much CPU
	// time of this process a task took, Others of those beside it, in microseconds.
	System float64 `json:"system"`
	Busy   float64 `json:"busy"`
	Cost   float64 `json:"cost_us"`
	Others float64 `json:"others_us"`
	// Memory is the most that this process held, in bytes.
	Memory int64 `json:"memory"`
}

// longestWarm bounds how long it takes until all callers have had a task.
const longestWarm = 20 * time.Second

// Run puts a load on its target. What it started runs on when it returns: it is
// for the process to end.
func Run(ctx context.Context, s Spec) (Result, error) {
	m, err := newMeter(s.Others)
	if err != nil {
		return Result{}, err
	}
	if s.Files > 0 {
		limit := syscall.Rlimit{Cur: s.Files, Max: s.Files}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return Result{}, fmt.Errorf("bounding how many files may be open: %w", err)
		}
	}
	by, err := open(ctx, s)
	if err != nil {
		return Result{}, err
	}
	rec := &recorder{}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errOver)
	if err := begin(ctx, s, by.run, rec); err != nil {
		return Result{}, err
	}
	before, err := m.spent()
	if err != nil {
		return Result{}, err
	}
	rec.begin()
	began := time.Now()
	if err := pause.For(ctx, s.For); err != nil {
		return Result{}, err
	}
	took := time.Since(began)
	r := rec.end(took)
	after, err := m.spent()
	if err != nil {
		return Result{}, err
	}
	r.Cap = by.cap()
	r.charge(before, after, took)
	r.Memory, err = m.memory()
	return r, err
}

// begin begins a load, and returns when it is as it is to be.
func begin(ctx context.Context, s Spec, run runs, rec *recorder) error {
	switch {
	case s.Waiting > 0:
		return crowd(ctx, s, run, rec)
	case s.Rate > 0:
		go arrive(ctx, s.Rate, run, rec)
	case s.Kind == Bare:
		go spawn(ctx, s.InFlight, run, rec)
	default:
		for range s.InFlight {
			go repeat(ctx, run, rec)
		}
	}
	if err := pause.For(ctx, s.Warm); err != nil {
		return err
	}
	// Each caller is to have had a task, and thereby its connection.
	warm := time.Now()
	for s.Rate == 0 && rec.seen() < s.InFlight && time.Since(warm) < longestWarm {
		if err := pause.For(ctx, beat); err != nil {
			return err
		}
	}
	return nil
}

// errOver is why tasks are told to stop in the end.
var errOver = errors.New("the load is over")

// beat is how often it is looked whether something has come about.
const beat = 5 * time.Millisecond
