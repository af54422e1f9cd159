package executor

import (
	"container/list"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"
)

// gate is what a tenant or a target lets through: so many at once, so many in a
// second, and of a target nothing while its circuit is open.
type gate struct {
	name     string
	scope    Scope
	share    Share
	inFlight int
	// waiting are those that wait and were submitted one by one; lanes are all
	// that wait.
	waiting int
	lanes   map[*lane]struct{}
	// parked are the lanes that wait for this gate.
	parked ranks[*lane]
	bucket *rate.Limiter // nil: no limit
	// timer is to look again when there is a token; nil: none is set.
	timer   *time.Timer
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: none
	// tripped: the circuit opened, and those that wait are to be told.
	tripped bool
	used    *list.Element // nil: not counted
}

// full reports whether as many run as may.
func (g *gate) full() bool { return g.share.InFlight > 0 && g.inFlight >= g.share.InFlight }

// crowded reports whether more wait than may.
func (g *gate) crowded() bool { return g.share.Queue > 0 && g.waiting > g.share.Queue }

// token reports whether there is one. It takes none, so that what waits for more
// than one gate holds back nobody at the others, and has nothing to give back.
func (g *gate) token(now time.Time) bool { return g.bucket == nil || g.bucket.TokensAt(now) >= 1 }

// take takes the token that there is.
func (g *gate) take(now time.Time) {
	if g.bucket != nil {
		g.bucket.AllowN(now, 1)
	}
}

// shut reports whether the circuit is open: what comes now is not even to wait.
func (g *gate) shut() bool { return g.breaker != nil && g.breaker.State() == gobreaker.StateOpen }

// idle reports whether it may be forgotten.
func (g *gate) idle() bool { return g.inFlight == 0 && len(g.lanes) == 0 }

// limit sets what it lets through, and keeps what it has counted.
func (g *gate) limit(s Share, now time.Time) {
	g.share = s
	g.disarm() // what it waits for comes at another time
	switch {
	case s.Rate <= 0:
		g.bucket = nil
	case g.bucket == nil:
		g.bucket = rate.NewLimiter(rate.Limit(s.Rate), s.Burst)
	default:
		g.bucket.SetLimitAt(now, rate.Limit(s.Rate))
		g.bucket.SetBurstAt(now, s.Burst)
	}
}

func (g *gate) disarm() {
	if g.timer != nil {
		g.timer.Stop() // if it is too late for that, it looks in vain
		g.timer = nil
	}
}

// errUntimely is what the breaker is told of a task that says nothing about its
// target: its caller gave up, or it never got there.
var errUntimely = errors.New("says nothing about the target")

// periods is in how many parts the breaker's window slides.
const periods = 10

// protect gives a target a new circuit breaker.
func (g *gate) protect(b Breaker) {
	g.breaker, g.tripped = nil, false
	if b.Off || g.scope != PerTarget {
		return
	}
	var own *gobreaker.TwoStepCircuitBreaker[struct{}]
	own = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(b.Probes), Interval: b.Window, BucketPeriod: b.Window / periods, Timeout: b.Open,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			n := c.TotalSuccesses + c.TotalFailures
			return n >= uint32(b.Min) && float64(c.TotalFailures) >= b.Ratio*float64(n)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errUntimely) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			// One that was replaced still hears of what it let through.
			g.tripped = to == gobreaker.StateOpen && g.breaker == own
		},
	})
	g.breaker = own
}

// gates are those of one scope. They remember a bounded number of idle ones, the
// last used.
type gates struct {
	scope   Scope
	each    Share
	named   map[string]Share
	breaker Breaker
	most    int
	known   map[string]*gate
	recent  *list.List // of *gate, the last used first
}

func newGates(scope Scope) *gates {
	return &gates{scope: scope, known: map[string]*gate{}, recent: list.New()}
}

// limit sets what holds for all of them. The circuit breakers begin anew where
// what they go by has changed.
func (s *gates) limit(each Share, named map[string]Share, b Breaker, most int, now time.Time) {
	anew := s.breaker != b
	s.each, s.named, s.breaker, s.most = each, named, b, most
	for _, g := range s.known {
		g.limit(share(each, named, g.name), now)
		if anew {
			g.protect(b)
		}
	}
	s.forget(nil)
}

// of returns the gate of a name.
func (s *gates) of(name string, now time.Time) *gate {
	if g := s.known[name]; g != nil {
		s.recent.MoveToFront(g.used)
		return g
	}
	g := &gate{name: name, scope: s.scope, lanes: map[*lane]struct{}{}}
	g.limit(share(s.each, s.named, name), now)
	g.protect(s.breaker)
	g.used = s.recent.PushFront(g)
	s.known[name] = g
	s.forget(g)
	return g
}

// forget forgets the idle ones that were used longest ago, where there are too
// many, save for one. It looks at few at a time, and those that are not idle count
// as used.
func (s *gates) forget(save *gate) {
	const looks = 8
	for n := 0; n < looks && len(s.known) > s.most; n++ {
		last := s.recent.Back()
		g := last.Value.(*gate) //nolint:errcheck,forcetypeassert // there is nothing else in it
		if g == save || !g.idle() {
			s.recent.MoveToFront(last)
			continue
		}
		s.recent.Remove(last)
		delete(s.known, g.name)
	}
}
