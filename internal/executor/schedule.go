package executor

import (
	"cmp"
	"container/heap"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// All of this file is called with the lock held.

// between names a lane.
type between struct{ tenant, target string }

// enqueue has a task wait. Whether it may begin at once is for fill to see.
func (e *Executor) enqueue(it *item, now time.Time) {
	it.queued = now
	e.seq++
	it.seq = e.seq
	name := between{it.task.Origin.Tenant, it.at}
	l := e.lanes[name]
	if l == nil {
		l = &lane{tenant: e.tenants.of(name.tenant, now), target: e.target(name.target, now)}
		l.tenant.lanes[l], l.target.lanes[l] = struct{}{}, struct{}{}
		e.lanes[name] = l
	}
	it.lane = l
	heap.Push(&l.items, it)
	e.count(it, 1)
	switch {
	case l.in == nil:
		l.to(&e.ready)
	case it.place == 0: // the lane is as urgent as its first
		heap.Fix(l.in, l.place)
	}
}

// target returns the gate of a target. What has none shares one that lets all
// through.
func (e *Executor) target(name string, now time.Time) *gate {
	if name == "" {
		return e.nowhere
	}
	return e.targets.of(name, now)
}

// count counts a task that begins or ends to wait.
func (e *Executor) count(it *item, n int) {
	e.waiting += n
	if !it.to.batch {
		e.single += n
		it.lane.tenant.waiting += n
		it.lane.target.waiting += n
	}
}

// leave takes a task out of its lane, which then is where it belongs.
func (e *Executor) leave(it *item) {
	l := it.lane
	e.count(it, -1)
	heap.Remove(&l.items, it.place)
	it.lane = nil
	if len(l.items) > 0 {
		if l.in != nil {
			heap.Fix(l.in, l.place)
		}
		return
	}
	if l.in != nil { // empty lanes have no order: out by hand
		e.drop(l)
	}
	delete(l.tenant.lanes, l)
	delete(l.target.lanes, l)
	delete(e.lanes, between{l.tenant.name, l.target.name})
}

// drop takes an empty lane out of where it is.
func (e *Executor) drop(l *lane) {
	in := *l.in
	last := len(in) - 1
	at := l.place
	if at != last {
		in[at] = in[last]
		in[at].moved(at)
	}
	in[last] = nil
	*l.in = in[:last]
	if at != last {
		heap.Fix(l.in, at)
	}
	l.in = nil
}

// fill begins what may begin, save for one that it returns, for the caller to run
// in a goroutine that it has; nil if there is none.
func (e *Executor) fill(now time.Time) *item {
	first := e.next(now)
	if first == nil {
		return nil
	}
	for {
		it := e.next(now)
		if it == nil {
			return first
		}
		go e.work(it)
	}
}

// start begins all that may begin.
func (e *Executor) start(now time.Time) {
	if it := e.fill(now); it != nil {
		go e.work(it)
	}
}

// next is the task that is to run next, which then counts as running; nil if none
// may.
func (e *Executor) next(now time.Time) *item {
	for len(e.ready) > 0 && len(e.running) < e.cap {
		if !e.whole.token(now) {
			e.arm(e.whole, now)
			return nil
		}
		l := e.ready[0]
		it := e.try(l, now)
		e.offer(l.tenant, now)
		e.offer(l.target, now)
		if it != nil {
			return it
		}
	}
	return nil
}

// try has the first of a lane run if its gates let it. Else the lane is parked at
// the gate that does not; or the circuit is open, and the task is to end so.
func (e *Executor) try(l *lane, now time.Time) *item {
	for _, g := range [...]*gate{l.target, l.tenant} {
		if g.full() || !g.token(now) {
			l.to(&g.parked)
			return nil
		}
	}
	it := l.items[0]
	if l.target.breaker != nil {
		report, err := l.target.breaker.Allow()
		if err != nil {
			e.leave(it)
			e.dead = append(e.dead, it)
			return nil
		}
		it.report = report
	}
	for _, g := range [...]*gate{e.whole, l.tenant, l.target} {
		g.take(now)
		g.inFlight++
	}
	e.leave(it)
	it.tenant, it.target, it.began = l.tenant, l.target, now
	it.timeout, it.window = cmp.Or(it.task.Timeout, e.limits.Timeout), e.limits.Window
	it.place = len(e.running)
	e.running = append(e.running, it)
	return it
}

// offer lets the first of the lanes that are parked at a gate try again, if it may
// pass now; the one after it is offered when that has been tried.
func (e *Executor) offer(g *gate, now time.Time) {
	switch {
	case len(g.parked) == 0 || g.full():
	case !g.token(now):
		e.arm(g, now)
	default:
		g.parked[0].to(&e.ready)
	}
}

// soonest is how long an empty bucket is left alone at least: timers that are
// closer cost more than they bring.
const soonest = time.Millisecond

// arm has a gate looked at when its bucket has a token.
func (e *Executor) arm(g *gate, now time.Time) {
	if g.timer != nil {
		return
	}
	e.config.Observer.Limited(g.scope)
	short := 1 - g.bucket.TokensAt(now)
	wait := max(soonest, time.Duration(short/float64(g.bucket.Limit())*float64(time.Second)))
	g.timer = time.AfterFunc(wait, func() {
		e.mu.Lock()
		now := time.Now()
		g.timer = nil
		e.offer(g, now)
		e.start(now)
		e.unlock()
	})
}

// stop takes a task out of those that run, and makes room for others. The breaker
// hears how it went.
func (e *Executor) stop(it *item, verdict error, now time.Time) {
	last := len(e.running) - 1
	e.running[it.place] = e.running[last]
	e.running[it.place].place = it.place
	e.running[last] = nil
	e.running = e.running[:last]
	for _, g := range [...]*gate{e.whole, it.tenant, it.target} {
		g.inFlight--
	}
	if it.report != nil {
		it.report(verdict)
		if it.target.tripped {
			it.target.tripped = false
			e.config.Observer.Tripped()
			e.drain(it.target, now)
		}
	}
	e.offer(it.tenant, now)
	e.offer(it.target, now)
}

// drain ends all that waits for a target whose circuit has opened.
func (e *Executor) drain(g *gate, now time.Time) {
	for l := range g.lanes {
		for _, it := range l.items {
			e.count(it, -1)
			e.dead = append(e.dead, it)
			it.lane = nil
		}
		l.items = nil
		if l.in != nil {
			e.drop(l)
		}
		delete(l.tenant.lanes, l)
		delete(e.lanes, between{l.tenant.name, l.target.name})
		delete(g.lanes, l)
		e.offer(l.tenant, now) // it may have been the one that was offered it
	}
}

// give gives the result of a task, which then is done with.
func (e *Executor) give(it *item, r task.Result) {
	e.held--
	e.done++
	e.config.Observer.Ended(&r)
	e.note(it, &r)
	it.to.give(r)
	if e.held == 0 && e.closing {
		e.allGiven()
	}
}

// skip ends a task that waits.
func (e *Executor) skip(it *item, trigger run.Trigger, why string, now time.Time) {
	tenant, target := it.lane.tenant, it.lane.target
	e.leave(it)
	e.give(it, skipped(it.task, trigger, why, now.Sub(it.queued)))
	// It may have been the one that was offered its gates.
	e.offer(tenant, now)
	e.offer(target, now)
}

// skipped is the result of a task that has not begun.
func skipped(t *task.Task, trigger run.Trigger, why string, waited time.Duration) task.Result {
	f := task.Failf(trigger, "%s", why)
	f.Retryable = true
	return task.Result{ID: t.ID, Type: t.Type, Status: task.Skipped, Error: f, Waited: waited}
}
