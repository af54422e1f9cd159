package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"belay.run/internal/dedup"
)

// raceOrder has goroutines claim the same keys in the same order.
type raceOrder struct {
	Name       string `json:"name"`
	Keys       int    `json:"keys"`
	Goroutines int    `json:"goroutines"`
}

// RaceResult is what came of a race: for each key one was to run.
type RaceResult struct {
	// Keys were claimed; Doubles are the executions beyond the first of a key,
	// Missing the keys that nobody ran.
	Keys, Doubles, Missing int
}

// Race lets goroutines in each of the workers claim the same keys, and counts who
// might run.
func Race(ctx context.Context, opts Options, keys, goroutines int) (_ *RaceResult, err error) {
	d := &drill{id: rand.Text(), opts: opts, result: Result{Rounds: map[string]int{}}}
	d.setDefaults()
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.hire(ctx); err != nil {
		return nil, err
	}
	answers := make([]answer, len(d.steady))
	errs := make([]error, len(d.steady))
	o := order{Race: &raceOrder{Name: d.name("race"), Keys: keys, Goroutines: goroutines}}
	var all sync.WaitGroup
	for i, w := range d.steady {
		all.Go(func() { answers[i], errs[i] = w.ask(ctx, o) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	result := &RaceResult{Keys: keys}
	for key := range keys {
		n := 0
		for _, a := range answers {
			if len(a.Executions) != keys {
				return nil, errors.New("a worker did not finish the race: Redis was away")
			}
			n += a.Executions[key]
		}
		result.Doubles += max(n-1, 0)
		if n == 0 {
			result.Missing++
		}
	}
	return result, nil
}

func race(ctx context.Context, decide decider, r raceOrder) ([]int, error) {
	counts := make([]atomic.Int32, r.Keys)
	errs := make([]error, r.Goroutines)
	var all sync.WaitGroup
	for g := range r.Goroutines {
		all.Go(func() { errs[g] = runRacer(ctx, decide, r, counts) })
	}
	all.Wait()
	executions := make([]int, r.Keys)
	for i := range counts {
		executions[i] = int(counts[i].Load())
	}
	return executions, errors.Join(errs...)
}

// runRacer claims every key once, for a run of its own.
func runRacer(ctx context.Context, decide decider, r raceOrder, counts []atomic.Int32) error {
	run := rand.Text()
	for i := range counts {
		v, err := decide.Claim(ctx, dedup.Claim{
			Key:     dedup.Key{Tenant: "race", Project: "p", Pipeline: "deploy", Name: fmt.Sprintf("%s-%d", r.Name, i)},
			Owner:   dedup.Owner{RunKey: run, WorkflowID: run, RunID: run},
			Request: dedup.Request{ID: run},
		})
		if err != nil {
			return err
		}
		if v.Decision.Runs() {
			counts[i].Add(1)
		}
	}
	return nil
}
