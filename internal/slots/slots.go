// Package slots shares a number of slots among tenants: whoever has waited longest
// of the tenant whose turn it is gets the next, so that a tenant with thousands
// who wait keeps nobody else waiting behind them.
package slots

import (
	"context"
	"slices"
	"sync"
)

// Slots are a number of slots. They are safe for concurrent use.
type Slots struct {
	most func(tenant string) int

	mu   sync.Mutex
	free int
	held map[string]int
	// queues are those who wait, by tenant; turns the tenants of whom somebody
	// waits, the next one first.
	queues map[string][]chan struct{}
	turns  []string
}

// New returns total slots, of which a tenant holds most(tenant) at once; 0 is no
// bound of its own, and so is a nil most.
func New(total int, most func(tenant string) int) *Slots {
	if most == nil {
		most = func(string) int { return 0 }
	}
	return &Slots{most: most, free: total, held: map[string]int{}, queues: map[string][]chan struct{}{}}
}

// Acquire waits for a slot and takes it. Whoever got one calls Release. An error
// is that of the context.
func (s *Slots) Acquire(ctx context.Context, tenant string) error {
	got := make(chan struct{})
	s.mu.Lock()
	if len(s.queues[tenant]) == 0 {
		s.turns = append(s.turns, tenant)
	}
	s.queues[tenant] = append(s.queues[tenant], got)
	s.grant()
	s.mu.Unlock()
	select {
	case <-got:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-got: // at the same moment
		s.give(tenant)
	default:
		at := slices.Index(s.queues[tenant], got)
		s.queues[tenant] = slices.Delete(s.queues[tenant], at, at+1)
		s.forget(tenant)
	}
	return context.Cause(ctx)
}

// Release gives a slot of a tenant back.
func (s *Slots) Release(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(tenant)
}

func (s *Slots) give(tenant string) {
	s.free++
	if s.held[tenant]--; s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
	s.grant()
}

// grant hands free slots out, turn by turn. A tenant that has all it may have
// keeps its turn.
func (s *Slots) grant() {
	for i := 0; s.free > 0 && i < len(s.turns); {
		tenant := s.turns[i]
		if most := s.most(tenant); most > 0 && s.held[tenant] >= most {
			i++
			continue
		}
		queue := s.queues[tenant]
		close(queue[0])
		s.queues[tenant] = queue[1:]
		s.free--
		s.held[tenant]++
		s.turns = append(slices.Delete(s.turns, i, i+1), tenant)
		s.forget(tenant)
		i = 0
	}
}

// forget drops a tenant of whom nobody waits.
func (s *Slots) forget(tenant string) {
	if len(s.queues[tenant]) > 0 {
		return
	}
	delete(s.queues, tenant)
	if at := slices.Index(s.turns, tenant); at >= 0 {
		s.turns = slices.Delete(s.turns, at, at+1)
	}
}
