package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"belay.run/dev/stack"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/config"
	"belay.run/internal/executor"
	"belay.run/internal/outbound"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

const (
	// batchNoops and batchCalls are how many tasks one measurement takes.
	batchNoops = 100_000
	batchCalls = 20_000
	// batchConcurrency is how many run at once, of both sides.
	batchConcurrency = 1_000
	// batchWindow is how many chunks of tasks the peer is given at once: as many
	// as a batch gives its workers.
	batchWindow = 16
	// ownMachine is where the target is.
	ownMachine = "127.0.0.0/8"
)

// batchBench is what batches are measured on: a stack with a worker, and an
// executor in this process as the peer.
type batchBench struct {
	dir string
	// http is where the worker answers; empty: nowhere.
	http    string
	stack   *stack.Stack
	store   store.Store
	control *control.Client
	target  *process
	peer    *executor.Executor
}

// openBatch measures batches from their start to their end, with their tasks
// packed, beside the same executor without any of what makes a batch durable.
func openBatch(ctx context.Context) ([]subject, func() error, error) {
	b := &batchBench{}
	if err := b.open(ctx); err != nil {
		return nil, nil, errors.Join(err, b.close(ctx))
	}
	peer := fmt.Sprintf("the executor alone, in memory, %d at once, given %d × %d tasks at a time", batchConcurrency, batchWindow, batch.ChunkDefault)
	noop := func(int) string { return `{"type":"noop"}` }
	return []subject{
		{"batch_noop", "tasks/s", peer, b.durable(batchNoops, noop), b.inMemory(batchNoops, task.Task{Type: "noop"})},
		{
			"batch_http", "tasks/s", peer + ", a target that answers after 50 ms", b.durable(batchCalls, b.call),
			b.inMemory(batchCalls, task.Task{Type: "http", With: []byte(`{"url":"http://` + b.target.address() + `/"}`)}),
		},
	}, func() error { return b.close(ctx) }, nil
}

// call is a line of a batch that asks the target.
func (b *batchBench) call(int) string {
	return `{"type":"http","with":{"url":"http://` + b.target.address() + `/"}}`
}

func (b *batchBench) open(ctx context.Context) error {
	var err error
	if b.target, err = startChild(ctx, childTarget); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "belay-bench-"); err != nil {
		return fmt.Errorf("creating a directory for the worker's state: %w", err)
	}
	// One target has all the room here.
	limits := filepath.Join(b.dir, "limits.yaml")
	text := fmt.Sprintf("concurrency: %d\ntarget: {in_flight: -1, queue: -1}\n", batchConcurrency)
	if err := os.WriteFile(limits, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the limits: %w", err)
	}
	settings, err := config.Load([]string{
		"--state-dir", b.dir, "--http-address", cmp.Or(b.http, config.HTTPOff), "--light-limits", limits, "--light-allow", ownMachine,
	}, noEnvironment)
	if err != nil {
		return err
	}
	settings.Store = "file://" + filepath.Join(b.dir, "store")
	if b.stack, err = stack.Start(ctx, stack.Options{Headless: true, Worker: settings}); err != nil {
		return err
	}
	if b.store, err = store.Open(ctx, b.stack.Settings.Store, nil); err != nil {
		return err
	}
	b.control = control.New(b.stack.Temporal.Client(), b.stack.Temporal.Namespace(), "")
	b.peer, err = executor.New(executor.Config{
		Limits: executor.Limits{Concurrency: batchConcurrency, Target: executor.Share{InFlight: -1, Queue: -1}},
		Registry: types.Builtin(types.Tools{Net: outbound.New(outbound.Config{
			Concurrency: batchConcurrency, Guard: outbound.Guard{Allow: []netip.Prefix{netip.MustParsePrefix(ownMachine)}},
		})}),
	})
	return err
}

func (b *batchBench) close(ctx context.Context) error {
	var errs []error
	if b.peer != nil {
		errs = append(errs, b.peer.Close(ctx))
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	if b.stack != nil {
		errs = append(errs, b.stack.Stop(ctx))
	}
	if b.target != nil {
		errs = append(errs, b.target.stop())
	}
	if b.dir != "" {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

// durable runs a batch of n tasks and returns how many of them ended in a
// second.
func (b *batchBench) durable(n int, line func(int) string) func(context.Context) (float64, error) {
	text := lines(n, line)
	return func(ctx context.Context) (float64, error) {
		in, err := b.pack(ctx, n, text)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		started, err := b.control.Start(ctx, in, uuid.NewString())
		if err != nil {
			return 0, err
		}
		d, err := b.control.Await(ctx, started.ID)
		if err != nil {
			return 0, err
		}
		took := time.Since(began)
		if d.Succeeded != n {
			return 0, fmt.Errorf("of %d tasks only %d succeeded: %s, %s %v %v", n, d.Succeeded, d.Status, d.Cause, d.Failures, d.Notes)
		}
		return float64(n) / took.Seconds(), batch.Remove(ctx, b.store, in.Folder)
	}
}

func lines(n int, line func(int) string) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(line(i) + "\n")
	}
	return text.String()
}

// pack puts the tasks of a batch into the store.
func (b *batchBench) pack(ctx context.Context, n int, text string) (batch.Input, error) {
	in := batch.Input{
		Folder: batch.NewFolder(), Total: n, ChunkSize: batch.ChunkDefault, Tenant: run.DefaultTenant, Project: run.DefaultProject,
	}
	_, err := batch.Pack(ctx, strings.NewReader(text), b.store, in.Folder, in.ChunkSize, types.Builtin(types.Tools{}))
	return in, err
}

// inMemory gives the same tasks to the executor in this process.
func (b *batchBench) inMemory(n int, like task.Task) func(context.Context) (float64, error) {
	tasks := make([]task.Task, n)
	for i := range tasks {
		tasks[i] = like
		tasks[i].ID = strconv.Itoa(i + 1)
	}
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		chunks := make(chan []task.Task)
		failed := make([]int, batchWindow)
		var wg sync.WaitGroup
		for lane := range batchWindow {
			wg.Go(func() {
				for chunk := range chunks {
					for r := range b.peer.SubmitBatch(ctx, chunk) {
						if r.Status != task.Succeeded {
							failed[lane]++
						}
					}
				}
			})
		}
		for rest := tasks; len(rest) > 0; {
			size := min(batch.ChunkDefault, len(rest))
			chunks <- rest[:size]
			rest = rest[size:]
		}
		close(chunks)
		wg.Wait()
		took := time.Since(began)
		for _, f := range failed {
			if f > 0 {
				return 0, fmt.Errorf("%d tasks failed", f)
			}
		}
		return float64(n) / took.Seconds(), nil
	}
}
