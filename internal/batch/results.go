package batch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
)

// NotStarted is the status of a task of a cancelled batch that had not been
// handed out, where its results are written.
const NotStarted task.Status = "not_started"

// ErrGone says that the store has nothing of a batch.
var ErrGone = errors.New("the store has neither tasks nor results of the batch")

// WriteResults writes the results of a batch that has ended, a JSON object a
// task and line, in the order of the file. It holds one chunk at a time. It is
// ErrGone, and nothing is written, where the batch was removed.
func WriteResults(ctx context.Context, st store.Store, d *Document, w io.Writer) error {
	if d.ChunkSize <= 0 {
		return errors.New("the batch does not say where its results are")
	}
	if err := isThere(ctx, st, d.Folder); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, MaxLine)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	in := Input{Total: d.Total, ChunkSize: d.ChunkSize}
	for k := range in.Chunks() {
		c := ChunkOf(d.Ref(), k, d.ChunkSize, d.Total)
		results, err := resultsOf(ctx, st, &c)
		if err != nil {
			return err
		}
		for i := range results {
			if err := enc.Encode(&results[i]); err != nil {
				return fmt.Errorf("writing the result of task %s: %w", results[i].ID, err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// isThere is an error where the store has nothing in a batch's folder.
func isThere(ctx context.Context, st store.Store, folder string) error {
	next, stop := iter.Pull2(st.List(ctx, folder))
	defer stop()
	switch _, err, some := next(); {
	case err != nil:
		return fmt.Errorf("looking for the batch's folder: %w", err)
	case !some:
		return fmt.Errorf("%w: %s", ErrGone, st)
	}
	return nil
}

// resultsOf are the results of all tasks of a chunk.
func resultsOf(ctx context.Context, st store.Store, c *Chunk) ([]task.Result, error) {
	j, err := ReadJournal(ctx, st, c)
	if err != nil {
		return nil, err
	}
	out := make([]task.Result, c.Tasks)
	complete := true
	for i, r := range j.Results {
		if r == nil {
			complete = false
			continue
		}
		out[i] = *r
	}
	if complete {
		return out, nil
	}
	tasks, err := Load(ctx, st, c)
	switch {
	case errors.Is(err, ErrDamaged):
		tasks = unknownTasks(c)
	case err != nil:
		return nil, err
	}
	for i, r := range j.Results {
		if r == nil {
			out[i] = unfinished(&tasks.Tasks[i])
		}
	}
	return out, nil
}

// unfinished is the line of a task that has no result.
func unfinished(t *task.Task) task.Result {
	r := task.Result{ID: t.ID, Type: t.Type, Status: NotStarted}
	if t.ID == "" {
		r.Status = task.Failed
		r.Error = task.Failf(run.TriggerDependencyUnavailable, "%s", ErrDamaged)
	}
	return r
}

// unknownTasks stand for those of a chunk that the store has lost.
func unknownTasks(c *Chunk) *Tasks { return &Tasks{Tasks: make([]task.Task, c.Tasks)} }

// Recount makes the account of a batch from what is recorded: of one whose
// workflow was terminated there is no other.
func Recount(ctx context.Context, st store.Store, d *Document) (*Tally, error) {
	in := Input{Total: d.Total, ChunkSize: d.ChunkSize}
	total := &Tally{}
	for k := range in.Chunks() {
		c := ChunkOf(d.Ref(), k, d.ChunkSize, d.Total)
		j, err := ReadJournal(ctx, st, &c)
		if err != nil {
			return nil, err
		}
		total.Plus(j.Tally())
	}
	return total, nil
}
