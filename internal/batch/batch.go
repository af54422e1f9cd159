// Package batch is light tasks in bulk: a file with a task a line, cut into
// chunks in the store, what each chunk came to, and the account of the whole.
//
// A batch lies in a folder of the store of its own. Its tasks are an object a
// chunk, written before it starts; so are its results, which grow as tasks end
// (see [Journal]). Temporal holds counts and the names of chunks only.
package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/task"
)

// Bounds of a batch.
const (
	// MaxTasks is how many lines a file may have.
	MaxTasks = 5_000_000
	// MaxLine bounds a line, and MaxChunkBytes the lines of a chunk together.
	MaxLine       = 64 << 10
	MaxChunkBytes = 16 << 20
	// ChunkDefault is how many tasks a chunk has, ChunkMost how many it may have.
	ChunkDefault = 250
	ChunkMost    = 1000
	// ConcurrencyMost bounds how many tasks of a batch may run at once.
	ConcurrencyMost = 100_000
	// RateLeast and RateMost bound how many of its tasks may begin in a second,
	// where that is bounded.
	RateLeast = 0.001
	RateMost  = 1e6
	// maxSamples is how many failed tasks a document names.
	maxSamples = 10
)

// Names in Temporal.
const (
	// Workflow and PartWorkflow are the registered workflow types.
	Workflow     = "Batch"
	PartWorkflow = "BatchPart"
	// StatusQuery returns a Progress from either.
	StatusQuery = "status"
	// Memo is kept with the workflow: its Input, so that a batch can be described
	// while no worker answers.
	Memo = "batch"
)

// Input starts a batch whose chunks lie in the store.
type Input struct {
	// Folder is where its chunks lie, as Pack put them there.
	Folder string `json:"folder"`
	// Total is how many tasks there are, ChunkSize how many a chunk has: the
	// last one may have fewer.
	Total     int `json:"total"`
	ChunkSize int `json:"chunk_size"`
	// Concurrency is how many of its tasks run at once, 0 as many as the workers
	// allow; Rate is how many begin in a second, 0 without a bound.
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
	Tenant      string  `json:"tenant"`
	Project     string  `json:"project"`
	// File is the name of the file, for people.
	File   string       `json:"file,omitempty"`
	Sender string       `json:"sender,omitempty"`
	Notify *spec.Notify `json:"notify,omitempty"`
	// Carried is how far an earlier run of the workflow has come.
	Carried *Carried `json:"carried,omitempty"`
}

// Chunks is how many chunks the batch has.
func (in *Input) Chunks() int { return (in.Total + in.ChunkSize - 1) / in.ChunkSize }

// Carried is what a batch knows when it continues as a new run.
type Carried struct {
	// Next is the first part that has not begun.
	Next      int       `json:"next"`
	StartedAt time.Time `json:"started_at"`
	Tally     Tally     `json:"tally"`
}

// PartInput starts a part of a batch: some of its chunks, one after the other.
type PartInput struct {
	Batch Ref `json:"batch"`
	// First is its first chunk, Chunks how many it has.
	First  int `json:"first"`
	Chunks int `json:"chunks"`
	// Total and ChunkSize are the batch's.
	Total     int `json:"total"`
	ChunkSize int `json:"chunk_size"`
	// Window is how many chunks run at once; Concurrency is its share of that of
	// the batch, 0 without a bound, and Rate that of a single chunk.
	Window      int     `json:"window"`
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
}

// Chunk is a chunk of the part by its place in it.
func (in *PartInput) Chunk(place int) Chunk {
	return ChunkOf(in.Batch, in.First+place, in.ChunkSize, in.Total)
}

// All are the chunks of the part.
func (in *PartInput) All() []Chunk {
	out := make([]Chunk, in.Chunks)
	for i := range out {
		out[i] = in.Chunk(i)
	}
	return out
}

// Ref names a batch and its place in the store.
type Ref struct {
	ID      string `json:"id"`
	Folder  string `json:"folder"`
	Tenant  string `json:"tenant"`
	Project string `json:"project"`
}

// Chunk names a chunk of a batch.
type Chunk struct {
	Batch Ref `json:"batch"`
	// Index is its place in the batch, First that of its first task, Tasks how
	// many it has.
	Index int `json:"index"`
	First int `json:"first"`
	Tasks int `json:"tasks"`
}

// String says which tasks the chunk has, counted from 1.
func (c *Chunk) String() string { return fmt.Sprintf("tasks %d–%d", c.First+1, c.First+c.Tasks) }

// ChunkOf is a chunk of a batch by its index.
func ChunkOf(ref Ref, index, size, total int) Chunk {
	first := index * size
	return Chunk{Batch: ref, Index: index, First: first, Tasks: min(size, total-first)}
}

// Document is that of a batch of which nothing more is known than what started
// it.
func (in *Input) Document(id, runID string, startedAt time.Time) Document {
	d := Document{
		ID: id, RunID: runID, Tenant: in.Tenant, Project: in.Project, File: in.File, Status: run.Running,
		Total: in.Total, StartedAt: &startedAt, Folder: in.Folder, ChunkSize: in.ChunkSize,
	}
	d.Take(&Tally{}, startedAt)
	return d
}

// Progress is what a batch or a part tells while it runs.
type Progress struct {
	Document Document `json:"document"`
	// Parts are the workflows of the parts that run; a part has none.
	Parts []Part `json:"parts,omitempty"`
}

// Part is the workflow of a part.
type Part struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// Document describes a batch under -o json, in Temporal as the result of its
// workflow, and to whoever is notified. Its counts add up to Total.
type Document struct {
	ID      string     `json:"id"`
	RunID   string     `json:"run_id,omitempty"`
	URL     string     `json:"url,omitempty"`
	Tenant  string     `json:"tenant,omitempty"`
	Project string     `json:"project,omitempty"`
	File    string     `json:"file,omitempty"`
	Status  run.Status `json:"status"`
	Cause   *run.Cause `json:"cause,omitempty"`
	Total   int        `json:"total"`
	Counts
	// Rate is how many tasks a second have ended since it started.
	Rate      float64    `json:"rate"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Failures are some of the tasks that failed.
	Failures []Failure `json:"failures"`
	// Notes are warnings worth a person's attention that changed no state.
	Notes []string `json:"notes,omitempty"`
	// Folder is where its tasks and results lie in the store.
	Folder    string `json:"folder,omitempty"`
	ChunkSize int    `json:"chunk_size,omitempty"`
}

// Ref names the batch that d describes.
func (d *Document) Ref() Ref {
	return Ref{ID: d.ID, Folder: d.Folder, Tenant: d.Tenant, Project: d.Project}
}

// Take takes over what has been counted, and counts the rest as not started. It
// sets the rate by the time at.
func (d *Document) Take(t *Tally, at time.Time) {
	d.Counts, d.Failures, d.Notes = t.Counts, t.Failures, t.Notes
	if d.Failures == nil {
		d.Failures = []Failure{}
	}
	d.NotStarted += d.Total - t.Sum()
	if d.StartedAt == nil {
		return
	}
	if took := at.Sub(*d.StartedAt); took > 0 {
		d.Rate = float64(d.Ended()) / took.Seconds()
	}
}

// IdempotencyKey is what a task sends along, the same for each attempt at it.
func IdempotencyKey(id, taskID string) string {
	sum := sha256.Sum256([]byte(id + "\x00" + taskID))
	return hex.EncodeToString(sum[:])
}

// origin is for whom a task of a batch runs.
func origin(ref Ref, id string) task.Origin {
	return task.Origin{
		Tenant: ref.Tenant, Project: ref.Project, Run: ref.ID, Node: id, IdempotencyKey: IdempotencyKey(ref.ID, id),
	}
}
