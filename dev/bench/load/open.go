package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/dedup"
	"belay.run/internal/executor"
	"belay.run/internal/metrics"
	"belay.run/internal/outbound"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

// runner is what runs the tasks.
type runner struct {
	run runs
	// executor is nil where it is not that which runs them.
	executor *executor.Executor
}

// cap is how many may run at once now, 0 where that does not change.
func (r runner) cap() int {
	if r.executor == nil {
		return 0
	}
	return r.executor.Status().Concurrency
}

// open readies what runs the tasks. It stays open until the process ends.
func open(ctx context.Context, s Spec) (r runner, err error) {
	net := outbound.New(outbound.Config{
		Concurrency: s.InFlight, Guard: outbound.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	})
	ask := asking(net, s.Target)
	switch s.Kind {
	case Executor, Keyed:
		return byExecutor(s, net)
	case Bare:
		r.run = ask
	case Threads:
		r.run = byThreads(ctx, s.Threads, ask)
	case Asynq:
		r.run, err = byAsynq(s, ask)
	default:
		err = fmt.Errorf("%q runs no tasks", s.Kind)
	}
	return r, err
}

// asking asks the target as plainly as the client of light tasks allows.
func asking(net *outbound.Net, url string) runs {
	const redirects = 5
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := net.Do(req, redirects, outbound.Private{}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	}
}

// byThreads has a fixed number of threads run tasks, each of them one at a time.
func byThreads(ctx context.Context, threads int, ask runs) runs {
	queue := make(chan func())
	for range threads {
		go func() {
			runtime.LockOSThread()
			for {
				select {
				case do := <-queue:
					do()
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return func(ctx context.Context) error {
		done := make(chan error, 1)
		select {
		case queue <- func() { done <- ask(ctx) }:
			return <-done
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ample is a rate, and a number of tasks that wait, which no load reaches: buckets
// and queues are there, and refuse nothing.
const ample = 1_000_000

// byExecutor has Belay's executor run tasks with all that it has.
func byExecutor(s Spec, net *outbound.Net) (runner, error) {
	share := executor.Share{InFlight: -1, Queue: -1, Rate: ample, Burst: ample}
	observer := &observer{Light: metrics.New().Light()}
	cfg := executor.Config{
		Registry: types.Builtin(types.Tools{Net: net}), Observer: observer,
		Limits: executor.Limits{
			Concurrency: s.InFlight, Queue: ample, Rate: ample, Burst: ample, Tenant: share, Target: share,
			Timeout: time.Minute, Window: time.Minute,
		},
	}
	if s.Kind == Keyed {
		claims, err := dedup.Open(redis.NewClient(&redis.Options{Addr: s.Redis}), dedup.Options{Tier: true})
		if err != nil {
			return runner{}, err
		}
		cfg.Claims = claims
	}
	e, err := executor.New(cfg)
	if err != nil {
		return runner{}, err
	}
	with, err := json.Marshal(map[string]string{"url": s.Target})
	if err != nil {
		return runner{}, err
	}
	if s.Waiting > 0 {
		return runner{inBulk(e, s.Waiting+s.InFlight, with), e}, nil
	}
	var serial atomic.Int64
	began := strconv.FormatInt(time.Now().UnixNano(), 36)
	run := func(ctx context.Context) error {
		t := task.Task{ID: strconv.FormatInt(serial.Add(1), 10), Type: "http", With: with, Origin: origin()}
		if s.Kind == Keyed {
			t.Key = began + "-" + t.ID
		}
		r, err := e.Submit(ctx, t)
		switch {
		case err != nil:
			return err
		case r.Status != task.Succeeded:
			return fmt.Errorf("%s: %w", r.Status, r.Error)
		case observer.lost():
			return dedup.ErrUnavailable
		}
		return nil
	}
	return runner{run, e}, nil
}

// inBulk submits n tasks at once, which is how so many come to wait: of those that
// are submitted one by one most would be refused.
func inBulk(e *executor.Executor, n int, with json.RawMessage) runs {
	return func(ctx context.Context) error {
		tasks := make([]task.Task, n)
		for i := range tasks {
			tasks[i] = task.Task{ID: strconv.Itoa(i), Type: "http", With: with, Origin: origin()}
		}
		results := e.SubmitBatch(ctx, tasks)
		for r := range results {
			return fmt.Errorf("one ended, %s: %w", r.Status, r.Error)
		}
		return nil
	}
}

func origin() task.Origin {
	return task.Origin{
		Tenant: "default", Project: "default", Pipeline: "load", Run: "load-1", Node: "stage/step",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

// observer is that of the metrics, and knows when a task ran without its claim.
type observer struct {
	*metrics.Light
	unclaimed atomic.Int64
}

// Unclaimed is called for each task that ran without its claim.
func (o *observer) Unclaimed() {
	o.unclaimed.Add(1)
	o.Light.Unclaimed()
}

// lost reports whether a task ran without its claim that was not reported yet.
func (o *observer) lost() bool {
	for {
		n := o.unclaimed.Load()
		if n == 0 {
			return false
		}
		if o.unclaimed.CompareAndSwap(n, n-1) {
			return true
		}
	}
}
