package liveness

import (
	"context"
	"sync"

	"belay.run/internal/dedup"
)

// EachOnce asks for each run once, however many claims it holds. It is safe for
// concurrent use, and for one look at many claims: answers grow old.
func EachOnce(ask func(context.Context, dedup.Owner) Answer) func(context.Context, dedup.Owner) Answer {
	var mu sync.Mutex
	answers := make(map[string]func() Answer) // by run key
	return func(ctx context.Context, owner dedup.Owner) Answer {
		mu.Lock()
		answer := answers[owner.RunKey]
		if answer == nil {
			answer = sync.OnceValue(func() Answer { return ask(ctx, owner) })
			answers[owner.RunKey] = answer
		}
		mu.Unlock()
		return answer()
	}
}
