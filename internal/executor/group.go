package executor

import (
	"context"
	"sync"
	"time"
)

const (
	// together is how many questions go in one round trip at most, and gather
	// how long the first of them waits for others.
	together = 256
	gather   = time.Millisecond
	// patience bounds a round trip. A worker short of CPU takes a second over one
	// though Redis is well, and would then run tasks without their claims. It is
	// well below slack, so that a lease outlives its task all the same.
	patience = 3 * time.Second
)

// group gathers questions to Redis, so that many go in one round trip.
type group[Q, A any] struct {
	ask func(ctx context.Context, questions []Q) ([]A, error)

	mu      sync.Mutex
	waiting []asked[Q, A]
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
	switch len(g.waiting) {
	case 1:
		time.AfterFunc(gather, g.flush)
	case together:
		go g.send(g.taken())
	}
}

// taken takes what waits. It is called with the lock held.
func (g *group[Q, A]) taken() []asked[Q, A] {
	taken := g.waiting
	g.waiting = nil
	return taken
}

// flush asks what waits. What came to be sent since it was set has nothing to do
// with it, and goes a little early.
func (g *group[Q, A]) flush() {
	g.mu.Lock()
	taken := g.taken()
	g.mu.Unlock()
	g.send(taken)
}

func (g *group[Q, A]) send(taken []asked[Q, A]) {
	if len(taken) == 0 {
		return
	}
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
