// Package logs keeps what steps print: complete in the store, an object for each
// attempt, and its newest part in Redis, where there is one, for those who watch.
package logs

import (
	"context"
	"sync"
	"sync/atomic"
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

// String is the stream's name: stdout, stderr or system.
func (s Stream) String() string {
	names := [...]string{Stdout: "stdout", Stderr: "stderr", System: "system"}
	if s < Stdout || s > System {
		return "unknown"
	}
	return names[s]
}

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
	// Node selects a node and all below it, and all legs of a matrix stage by
	// the stage's name; "" selects everything.
	Node string
	// Attempt selects one attempt; 0 selects all.
	Attempt int
}

// Source is the log of one attempt of a node.
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
	// away is until when Redis is left alone after it failed, as Unix time in
	// nanoseconds.
	away atomic.Int64
	// talks counts the goroutines that may be waiting for Redis.
	talks sync.WaitGroup
}

const (
	// awayTime is how long Redis is left alone after it failed.
	awayTime = 3 * time.Second
	// closeWait bounds Close.
	closeWait = 2 * time.Second
)

// New keeps logs in st. With an rdb, what is written is also shown there at once
// to those who follow; an rdb that is slow or away is never waited for. Rdb may
// be nil.
func New(st store.Store, rdb redis.UniversalClient) *Logs {
	return &Logs{store: st, rdb: rdb}
}

// Close waits, for two seconds at most, for what is still on its way to Redis or
// from there. Close the writers first.
func (l *Logs) Close() {
	idle := make(chan struct{})
	go func() {
		l.talks.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(closeWait):
	}
}

// reachable reports whether it is worth while to talk to Redis.
func (l *Logs) reachable() bool {
	return l.rdb != nil && time.Now().UnixNano() >= l.away.Load()
}

// failed notes that Redis did not answer well.
func (l *Logs) failed() { l.away.Store(time.Now().Add(awayTime).UnixNano()) }

// Sources lists the logs of a run that f selects, by node and attempt.
func (l *Logs) Sources(ctx context.Context, runKey string, f Filter) ([]Source, error) {
	parts, err := l.parts(ctx, runKey, f)
	if err != nil {
		return nil, err
	}
	var sources []Source
	for _, p := range parts {
		s := Source{Node: p.node, Attempt: p.attempt, Size: p.size, Modified: p.modified}
		if n := len(sources); n > 0 && sources[n-1].Node == s.Node && sources[n-1].Attempt == s.Attempt {
			s.Size += sources[n-1].Size
			sources = sources[:n-1]
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// Remove deletes all logs of a run from the store. Redis forgets them by itself.
func (l *Logs) Remove(ctx context.Context, runKey string) error {
	if err := checkRunKey(runKey); err != nil {
		return err
	}
	return l.store.Delete(ctx, RunPrefix(runKey))
}
