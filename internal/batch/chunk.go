package batch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/google/uuid"

	"belay.run/internal/store"
	"belay.run/internal/task"
)

// folders of the store.
const (
	root        = "batches/"
	tasksDir    = "/tasks/"
	resultsDir  = "/results/"
	decodeExtra = 512
)

// NewFolder is a folder of the store for a new batch.
func NewFolder() string { return root + uuid.NewString() }

func tasksKey(folder string, chunk int) string   { return folder + tasksDir + strconv.Itoa(chunk) }
func resultsKey(folder string, chunk int) string { return folder + resultsDir + strconv.Itoa(chunk) }

// storedTask is a task as a chunk in the store has it.
type storedTask struct {
	task.Task

	// Line is its place in the file: lines may be empty.
	Line int `json:"line"`
}

// ErrDamaged says that a chunk in the store is gone, or is not what was put
// there: trying again will not help.
var ErrDamaged = errors.New("the chunk's tasks are not in the store as they were put there")

// Tasks are those of a chunk, in the order of the file.
type Tasks struct {
	Tasks []task.Task
	// Lines are their places in the file.
	Lines []int
}

// Load reads the tasks of a chunk from the store.
func Load(ctx context.Context, st store.Store, c *Chunk) (*Tasks, error) {
	text, err := readAll(ctx, st, tasksKey(c.Batch.Folder, c.Index), MaxChunkBytes+decodeExtra)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the tasks of a chunk: %w", err)
	}
	out := &Tasks{Tasks: make([]task.Task, 0, c.Tasks), Lines: make([]int, 0, c.Tasks)}
	for l := range bytes.Lines(text) {
		var t storedTask
		if err := json.Unmarshal(l, &t); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		t.Origin = origin(c.Batch, t.ID)
		out.Tasks, out.Lines = append(out.Tasks, t.Task), append(out.Lines, t.Line)
	}
	if len(out.Tasks) != c.Tasks {
		return nil, fmt.Errorf("%w: %d tasks instead of %d", ErrDamaged, len(out.Tasks), c.Tasks)
	}
	return out, nil
}

// readAll reads an object of at most so many bytes.
func readAll(ctx context.Context, st store.Store, key string, most int64) (_ []byte, err error) {
	r, err := st.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var text bytes.Buffer
	if _, err := io.Copy(&text, io.LimitReader(r, most)); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// Wait is how long to wait before try number n of what the store refused, from
// 1: it may be away for a while.
func Wait(n int) time.Duration {
	const first, last = 50 * time.Millisecond, 5 * time.Second
	wait := first
	for range n - 1 {
		if wait *= 2; wait >= last {
			return last
		}
	}
	return wait
}
