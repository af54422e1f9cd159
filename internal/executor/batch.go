package executor

import (
	"context"
	"slices"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// feed is how many tasks of a batch are taken at a time: others wait for the lock
// no longer than that.
const feed = 128

// SubmitBatch runs many tasks, of which each gives one result, in the order in
// which they end. None is refused: those for which there is no room wait, and they
// take no place in the queue from tasks that are submitted one by one. A task that
// is invalid fails; what had not begun when ctx ended, or when the executor
// closed, is skipped. The channel has room for all results, so that nobody need
// read it, and is closed after the last. The tasks must not be changed until then.
func (e *Executor) SubmitBatch(ctx context.Context, tasks []task.Task) <-chan task.Result {
	results := make(chan task.Result, len(tasks))
	if len(tasks) == 0 {
		close(results)
		return results
	}
	e.config.Observer.Batched(len(tasks))
	to := &sink{results: results, left: len(tasks), batch: true}
	items := make([]item, len(tasks))
	for i := range items {
		it := &items[i]
		it.task, it.ctx, it.to = &tasks[i], ctx, to
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held += len(items)
	if e.closing {
		for i := range items {
			e.give(&items[i], skipped(items[i].task, run.TriggerMaintenance, closedUp, 0))
		}
		return results
	}
	go func() {
		to.unhook = context.AfterFunc(ctx, func() { e.withdraw(items) })
		for part := range slices.Chunk(items, feed) {
			e.feed(part)
		}
	}()
	return results
}

// feed takes some tasks of a batch.
func (e *Executor) feed(items []item) {
	var failures [feed]*task.Failure
	for i := range items {
		failures[i] = e.prepare(&items[i])
	}
	e.mu.Lock()
	defer e.unlock()
	now := time.Now()
	for i := range items {
		it := &items[i]
		switch {
		case e.handedBack:
			e.give(it, skipped(it.task, run.TriggerMaintenance, closedUp, 0))
		case it.ctx.Err() != nil:
			e.give(it, skipped(it.task, run.TriggerUser, givenUp, 0))
		case failures[i] != nil:
			e.give(it, task.Result{ID: it.task.ID, Type: it.task.Type, Status: task.Failed, Error: failures[i]})
		default:
			e.take(it, now)
		}
	}
	e.start(now)
}

// withdraw skips what waits of a batch whose caller gave up.
func (e *Executor) withdraw(items []item) {
	e.mu.Lock()
	defer e.unlock()
	now := time.Now()
	for i := range items {
		if items[i].lane != nil {
			e.skip(&items[i], run.TriggerUser, givenUp, now)
		}
	}
	e.start(now)
}
