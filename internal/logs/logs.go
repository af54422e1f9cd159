// Package logs keeps what steps print: complete in the store, one object per
// attempt, and its newest part in Redis, where there is one, for those who watch.
package logs

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/store"
)

// Stream says where the bytes of a record come from.
type Stream uint8

// The streams of a step.
const (
	// Stdout and Stderr are what the step printed.
	Stdout Stream = iota + 1
	Stderr
	// System is what Belay itself has to say about the step.
	System
)

// Step names one attempt of a step, whose log it is.
type Step struct {
	RunKey string
	// Node is the step's path, such as build/compile.
	Node string
	// Attempt counts from 1.
	Attempt int
}

// Record is a piece of a log: bytes that came together, kept exactly. It may
// hold a part of a line or several.
type Record struct {
	Time    time.Time
	Node    string
	Attempt int
	Stream  Stream
	// Data is valid until the function that it was given to returns.
	Data []byte
}

// Filter selects a part of the logs of a run.
type Filter struct {
	// Node selects a node and all below it, and the legs of a matrix stage by
	// its name; "" selects all.
	Node string
	// Attempt selects one attempt; 0 selects all.
	Attempt int
}

// Source is one log: of one attempt of a node.
type Source struct {
	Node     string
	Attempt  int
	Size     int64
	Modified time.Time
}

// Logs writes and reads logs. It is safe for concurrent use.
type Logs struct {
	store store.Store
	rdb   redis.UniversalClient
}

// New keeps logs in st. With an rdb, what is written is also announced there, so
// that it is seen at once; a rdb that is slow or away is never waited for. Rdb
// may be nil.
func New(st store.Store, rdb redis.UniversalClient) *Logs {
	return &Logs{store: st, rdb: rdb}
}

// Close waits, not for long, for what is still under way to Redis. Close
// writers first.
func (l *Logs) Close() {}

// Options says how a log is written.
type Options struct {
	// Limit is how many bytes of output are kept. Defaults to 1 GiB.
	Limit int64
}

// Summary says what became of the output of a step.
type Summary struct {
	// Bytes were printed, Dropped of them are not in the log: they were over
	// the limit, or the store did not take them.
	Bytes   int64
	Dropped int64
}

// Sources lists the logs that a run has, by node and attempt.
func (l *Logs) Sources(ctx context.Context, runKey string) ([]Source, error) { return nil, nil }
