package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
)

// maxJournal bounds the journal of a chunk that is read.
const maxJournal = 128 << 20

// Marks of lines in a journal: which tasks an attempt has taken upon itself,
// and which it gave back unsent.
const (
	takenMark = "taken"
	backMark  = "back"
)

// ErrTaken says that another attempt has taken over the chunk.
var ErrTaken = errors.New("another attempt has taken over the chunk")

// Journal is the record of what became of a chunk's tasks: an object in the
// store to which each attempt at the chunk adds lines. The first line of an
// attempt takes all tasks that have no result, in one round trip; one a task
// follows, with its result, as tasks end. Every addition says where the journal
// must end, so that an attempt which was taken for dead can add nothing to what
// a later one began.
type Journal struct {
	st    store.Store
	key   string
	chunk *Chunk
	off   int64
	// torn says that it ends amid a line.
	torn bool
	// Lines are the places of its tasks in the file; nil where they are not known.
	Lines []int
	// Results are those that are recorded, by the task's place in the chunk.
	Results []*task.Result
	// Doubt tells of each task whether an earlier attempt has taken it and
	// recorded no result: it may have been done.
	Doubt []bool
}

// ReadJournal reads what is recorded of a chunk. That nothing is, is no error.
func ReadJournal(ctx context.Context, st store.Store, c *Chunk) (*Journal, error) {
	j := &Journal{
		st: st, key: resultsKey(c.Batch.Folder, c.Index), chunk: c,
		Results: make([]*task.Result, c.Tasks), Doubt: make([]bool, c.Tasks),
	}
	text, err := readAll(ctx, st, j.key, maxJournal)
	if errors.Is(err, store.ErrNotFound) {
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the results of a chunk: %w", err)
	}
	j.off, j.torn = int64(len(text)), len(text) > 0 && text[len(text)-1] != '\n'
	for l := range bytes.Lines(text) {
		j.read(l)
	}
	return j, nil
}

// read takes in a line. One that makes no sense was being written when the
// machine lost power: it records nothing.
func (j *Journal) read(l []byte) {
	head, rest, _ := bytes.Cut(bytes.TrimSuffix(l, []byte("\n")), []byte(" "))
	switch string(head) {
	case takenMark:
		for i, r := range j.Results {
			j.Doubt[i] = j.Doubt[i] || r == nil
		}
		return
	case backMark:
		if i, err := strconv.Atoi(string(rest)); err == nil && i >= 0 && i < len(j.Doubt) {
			j.Doubt[i] = false
		}
		return
	}
	i, err := strconv.Atoi(string(head))
	if err != nil || i < 0 || i >= len(j.Results) || j.Results[i] != nil {
		return
	}
	var r task.Result
	if json.Unmarshal(rest, &r) == nil {
		j.Results[i], j.Doubt[i] = &r, false
	}
}

// Take takes all tasks that have no result upon this attempt. After ErrTaken the
// journal is to be read again.
func (j *Journal) Take(ctx context.Context) error {
	return j.append(ctx, []byte(takenMark+"\n"))
}

// Record adds results, by the tasks' places in the chunk. It is whole or not at
// all, and may be tried again after any error but ErrTaken.
func (j *Journal) Record(ctx context.Context, entries []Entry) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for i := range entries {
		e := &entries[i]
		if e.Back {
			text.WriteString(backMark + " " + strconv.Itoa(e.Place) + "\n")
			continue
		}
		text.WriteString(strconv.Itoa(e.Place))
		text.WriteByte(' ')
		if err := enc.Encode(&e.Result); err != nil {
			return fmt.Errorf("writing the result of task %s: %w", e.Result.ID, err)
		}
	}
	if err := j.append(ctx, text.Bytes()); err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if !e.Back {
			j.Results[e.Place] = &e.Result
		}
		j.Doubt[e.Place] = false
	}
	return nil
}

// Entry is what has become of a task.
type Entry struct {
	// Place is the task's in the chunk.
	Place  int
	Result task.Result
	// Back says that it was given back unsent, and has no result.
	Back bool
}

func (j *Journal) append(ctx context.Context, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	// Another attempt takes a chunk with the same words.
	taking := string(text) == takenMark+"\n"
	if j.torn {
		text = slices.Concat([]byte("\n"), text)
	}
	err := j.st.Append(ctx, j.key, j.off, text)
	if errors.Is(err, store.ErrConflict) {
		// Perhaps it is there from a try whose answer was lost.
		there := make([]byte, len(text)+1)
		n, rerr := j.st.ReadAt(ctx, j.key, there, j.off)
		if n != len(text) || !errors.Is(rerr, io.EOF) || !bytes.Equal(there[:n], text) || taking {
			return fmt.Errorf("%w: %w", ErrTaken, err)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("recording results: %w", err)
	}
	j.off, j.torn = j.off+int64(len(text)), false
	return nil
}

// Missing is how many tasks have no result.
func (j *Journal) Missing() int {
	n := 0
	for _, r := range j.Results {
		if r == nil {
			n++
		}
	}
	return n
}

// Doubts reports whether an attempt has taken tasks of which nothing more is
// recorded.
func (j *Journal) Doubts() bool { return slices.Contains(j.Doubt, true) }

// Tally counts the chunk as it is recorded: what has no result has not started.
func (j *Journal) Tally() *Tally {
	t := &Tally{}
	for i, r := range j.Results {
		switch {
		case r == nil:
			t.NotStarted++
		case j.Lines == nil:
			t.Add(j.chunk.First+i+1, r)
		default:
			t.Add(j.Lines[i], r)
		}
	}
	return t
}

// Doubtful is the result of a task that an attempt had taken when its worker
// was lost, and that is not to be tried again.
func Doubtful(t *task.Task, why string) task.Result {
	return task.Result{
		ID: t.ID, Type: t.Type, Status: task.Failed,
		Error: &task.Failure{
			Trigger:   run.TriggerWorkerLost,
			Message:   "its worker was lost while it may have been running, so that nobody knows whether it was done: " + why,
			Retryable: true,
		},
	}
}

// Patiently does something with the store again and again until it works, the
// error says that it never will, or ctx ends. Each failure is told.
func Patiently(ctx context.Context, told func(error), do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := do(ctx)
		if err == nil || errors.Is(err, ErrTaken) || errors.Is(err, ErrDamaged) {
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		told(err)
		if pause.For(ctx, Wait(try)) != nil {
			return err
		}
	}
}
