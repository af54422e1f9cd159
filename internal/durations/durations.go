// Package durations remembers how long pipelines and steps took: the last few of
// each, so that windows and timeouts can be derived from what was measured.
package durations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// kept is how many durations of a subject are remembered.
	kept = 256
	// forgotten is how long a subject is remembered after its last one.
	forgotten = 30 * 24 * time.Hour
	// callTimeout bounds a call to Redis.
	callTimeout = 2 * time.Second

	// WindowDefault is the window where nothing is known.
	WindowDefault = 24 * time.Hour
)

// Subject is what took a time: a pipeline, or a node of it.
type Subject struct {
	Tenant   string
	Project  string
	Pipeline string
	// Node is the path of a stage or a step, "" for the pipeline itself.
	Node string
}

// key is one Redis list of each subject. Names come from anywhere, so they are
// hashed: no key grows long, and none means two subjects.
func (s Subject) key() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Tenant, s.Project, s.Pipeline, s.Node}, "\x00")))
	return "belay:durations:" + hex.EncodeToString(sum[:16])
}

// Quantiles are those of the durations that are remembered.
type Quantiles struct {
	P50   time.Duration `json:"p50"`
	P95   time.Duration `json:"p95"`
	P99   time.Duration `json:"p99"`
	Count int           `json:"count"`
}

// Durations keeps durations in Redis. It is safe for concurrent use.
type Durations struct {
	rdb redis.UniversalClient
}

// New returns the durations that Redis keeps.
func New(rdb redis.UniversalClient) *Durations { return &Durations{rdb: rdb} }

// Add remembers how long something took that succeeded. What failed says nothing
// about how long the work takes.
func (d *Durations) Add(ctx context.Context, s Subject, took time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := d.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, s.key(), max(took, 0).Milliseconds())
		p.LTrim(ctx, s.key(), 0, kept-1)
		p.PExpire(ctx, s.key(), forgotten)
		return nil
	})
	if err != nil {
		return fmt.Errorf("remembering the duration of %s: %w", s, err)
	}
	return nil
}

// Quantiles tells how long a subject took the last times; all zero where nothing
// is remembered.
func (d *Durations) Quantiles(ctx context.Context, s Subject) (Quantiles, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	texts, err := d.rdb.LRange(ctx, s.key(), 0, kept-1).Result()
	if err != nil {
		return Quantiles{}, fmt.Errorf("reading the durations of %s: %w", s, err)
	}
	all := make([]time.Duration, 0, len(texts))
	for _, text := range texts {
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Quantiles{}, fmt.Errorf("reading the durations of %s: %w", s, err)
		}
		all = append(all, time.Duration(ms)*time.Millisecond)
	}
	return quantiles(all), nil
}

func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	// The smallest that at least this part of them does not exceed.
	at := func(q float64) time.Duration {
		return all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
	}
	return Quantiles{P50: at(0.50), P95: at(0.95), P99: at(0.99), Count: len(all)}
}

// Window is how long a completed run blocks others where the file says auto:
// twice the p99, at least twice the timeout, and WindowDefault where nothing is
// known.
func (d *Durations) Window(ctx context.Context, s Subject, timeout time.Duration) (time.Duration, error) {
	q, err := d.Quantiles(ctx, s)
	if err != nil {
		return max(WindowDefault, 2*timeout), err
	}
	return q.Window(timeout), nil
}

// Window is that of Durations.Window from what is known.
func (q Quantiles) Window(timeout time.Duration) time.Duration {
	if q.Count == 0 {
		return max(WindowDefault, 2*timeout)
	}
	return max(2*q.P99, 2*timeout)
}

// String names a subject for people.
func (s Subject) String() string {
	return strings.TrimRight(strings.Join([]string{s.Tenant, s.Project, s.Pipeline, s.Node}, "/"), "/")
}
