package executor

import (
	"context"
	"sync"
	"time"
)

const (
	// together is how many questions go in one round trip at most, and gather how
	// long the first of them waits for others where none is under way.
	together = 1000
	gather   = time.Millisecond
	// patience bounds a round trip. A worker short of CPU takes a second over one
	// though Redis is well, and would then run tasks without their claims. It is
	// well below slack, so that a lease outlives its task all the same.
	patience = 3 * time.Second
)

// group gathers questions to Redis, so that many go in one round trip. There is one
// at a time, and what comes meanwhile goes with the next: the busier Redis or this
// process is, the more go together.
type group[Q, A any] struct {
	ask func(ctx context.Context, questions []Q) ([]A, error)

	mu      sync.Mutex
	waiting []asked[Q, A]
	// asking: a goroutine asks what waits, or is about to begin.
	asking bool
}

// asked is a question, and who is told the answer.
type asked[Q, A any] struct {
	question Q
	answer   func(A, error)
}

// put asks a question. The answer comes from another goroutine.
func (g *group[Q, A]) put(question Q, answer func(A, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, asked[Q, A]{question, answer})
	if !g.asking {
		g.asking = true
		time.AfterFunc(gather, g.askAll)
	}
}

// askAll asks until nothing waits.
func (g *group[Q, A]) askAll() {
	for taken := g.take(); len(taken) > 0; taken = g.take() {
		g.send(taken)
	}
}

// take takes the first of what waits, as many as go together.
func (g *group[Q, A]) take() []asked[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.waiting
	switch {
	case len(taken) > together:
		taken, g.waiting = taken[:together], taken[together:]
	default:
		g.waiting, g.asking = nil, len(taken) > 0
	}
	return taken
}

func (g *group[Q, A]) send(taken []asked[Q, A]) {
	questions := make([]Q, len(taken))
	for i := range taken {
		questions[i] = taken[i].question
	}
	// Those who ask may give up one by one; the round trip is for all.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answers, err := g.ask(ctx, questions)
	for i := range taken {
		var a A
		if err == nil {
			a = answers[i]
		}
		taken[i].answer(a, err)
	}
}
