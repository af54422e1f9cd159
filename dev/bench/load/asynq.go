package load

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hibiken/asynq"
)

// byAsynq has asynq run tasks: its client and its server in one process, its
// tasks in Redis.
func byAsynq(s Spec, ask runs) (runs, error) {
	const kind = "ask"
	opt := asynq.RedisClientOpt{Addr: s.Redis}
	queue := rand.Text()
	server := asynq.NewServer(opt, asynq.Config{
		Concurrency: s.InFlight, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
	})
	var waiting sync.Map // of chan error by id
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := ask(ctx)
		if done, ok := waiting.LoadAndDelete(string(t.Payload())); ok {
			done.(chan error) <- err //nolint:errcheck,forcetypeassert // there is nothing else in it
		}
		return err
	}))
	if err != nil {
		return nil, fmt.Errorf("starting asynq: %w", err)
	}
	client := asynq.NewClient(opt)
	var serial atomic.Int64
	return func(ctx context.Context) error {
		id := strconv.FormatInt(serial.Add(1), 10)
		done := make(chan error, 1)
		waiting.Store(id, done)
		if _, err := client.EnqueueContext(ctx, asynq.NewTask(kind, []byte(id)), asynq.Queue(queue), asynq.MaxRetry(0)); err != nil {
			return fmt.Errorf("enqueueing: %w", err)
		}
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, nil
}
