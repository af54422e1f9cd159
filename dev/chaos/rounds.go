package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"belay.run/internal/dedup"
)

const (
	// lease is how long an owner of the drill holds a claim unrenewed.
	lease = 200 * time.Millisecond
	// window is longer than any drill.
	window = 4 * time.Hour
	// racers ask at once.
	racers = 6
)

// round is one story with a key of its own, whose right course is known.
type round struct {
	name string
	play func(ctx context.Context, d *drill) error
}

func ordinary() []round {
	return []round{
		{"burst, then duplicates of what completed", completedRound},
		{"failure: late, redelivered and meant", failedRound},
		{"a meant rerun of what completed", rerunRound},
		{"attempts of one owner on several workers", attemptsRound},
	}
}

func disruptive() []round {
	return []round{
		{"kill -9, the run goes on", killedRound},
		{"kill -9, the run is closed", lostRound},
		{"SIGSTOP beyond the lease", stoppedRound},
		{"cut off from Redis", cutRound},
	}
}

// request is one request of a round: claimed by whom, under which id.
type request struct {
	key    dedup.Key
	runKey string
	id     string
	sender string
	at     time.Time
	rerun  bool
}

// story is what the requests of a round have in common.
type story struct {
	d    *drill
	name string
	key  dedup.Key
}

// ofPipeline begins a story about runs of a pipeline under a key.
func (d *drill) ofPipeline(name string) *story {
	s := d.ofStep(name)
	s.key.Pipeline = "deploy"
	return s
}

// ofStep begins a story about a step under a key, which is claimed with a lease.
func (d *drill) ofStep(name string) *story {
	return &story{d: d, name: name, key: dedup.Key{Tenant: "drill", Project: "p", Name: d.name("key")}}
}

// request is a new request: of a new run, under a new id, made now by Redis's
// clock.
func (s *story) request(ctx context.Context) (request, error) {
	at, err := s.d.worker().ask(ctx, order{Now: true})
	if err != nil {
		return request{}, err
	}
	return request{key: s.key, runKey: s.d.name("run"), id: s.d.name("request"), sender: "drill", at: at.At}, nil
}

// again is a request that was delivered once more: the same id, another run.
func (s *story) again(r request) request {
	r.runKey = s.d.name("run")
	return r
}

func (r request) claim(dead int64) *dedup.Claim {
	c := &dedup.Claim{
		Key: r.key, Owner: dedup.Owner{RunKey: r.runKey, WorkflowID: r.runKey, RunID: r.runKey},
		Request: dedup.Request{ID: r.id, Sender: r.sender, At: r.at}, Rerun: r.rerun, Dead: dead, Replicate: true,
	}
	if r.key.Pipeline == "" {
		c.Owner.Node, c.Lease = "build/step", lease
	}
	return c
}

// send claims for a request on a worker, the way an activity does: where the
// owner has not renewed in time it asks whether its run is closed, and only then
// takes over.
func (s *story) send(ctx context.Context, w *worker, r request) (answer, error) {
	a, err := w.ask(ctx, order{Claim: r.claim(0)})
	if err != nil || a.refused || a.Decision != dedup.InFlight || !s.d.isClosed(a.Record.Owner.RunKey) {
		return a, err
	}
	return w.ask(ctx, order{Claim: r.claim(a.Record.Token)})
}

// expect sends a request and counts what became of it.
func (s *story) expect(ctx context.Context, w *worker, r request, meant bool, what string) (answer, error) {
	a, err := s.send(ctx, w, r)
	if err == nil {
		s.d.count(meant, a, s.name+": "+what)
	}
	return a, err
}

// burst sends requests at once on as many workers, any one of which may run, and
// returns the one that did.
func (s *story) burst(ctx context.Context) (began request, first answer, err error) {
	requests := make([]request, racers)
	answers := make([]answer, racers)
	errs := make([]error, racers)
	for i := range requests {
		if requests[i], err = s.request(ctx); err != nil {
			return began, first, err
		}
	}
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { answers[i], errs[i] = s.send(ctx, s.d.worker(), requests[i]) })
	}
	all.Wait()
	for i, a := range answers {
		if errs[i] != nil {
			return began, first, errs[i]
		}
		if a.runs() {
			began, first = requests[i], a
		}
	}
	s.d.countBurst(answers, s.name+": burst")
	if !first.runs() {
		return began, first, errOver
	}
	return began, first, nil
}

// errOver ends a round early, since what comes next needs what went wrong before.
// The mistake is counted.
var errOver = errors.New("the round is over")

// meant sends a request that is to run, as a retry or a rerun of what has ended.
func (s *story) meant(ctx context.Context, rerun bool, what string) (request, answer, error) {
	r, err := s.request(ctx)
	if err != nil {
		return r, answer{}, err
	}
	r.rerun = rerun
	a, err := s.expect(ctx, s.d.worker(), r, true, what)
	if err == nil && !a.runs() {
		err = errOver
	}
	return r, a, err
}

// end settles what a request began.
func (s *story) end(ctx context.Context, w *worker, a answer, state dedup.State) error {
	got, err := w.ask(ctx, order{Settle: settlement(a, state)})
	if err == nil && (got.Away || got.NotOwner) {
		err = fmt.Errorf("the owner of %s could not settle it: away %v, not owner %v", s.key, got.Away, got.NotOwner)
	}
	s.d.close(a.Record.Owner.RunKey)
	return err
}

func settlement(a answer, state dedup.State) *dedup.Settlement {
	r := a.Record
	return &dedup.Settlement{
		Held: dedup.Held{Key: r.Key, Owner: r.Owner, Token: r.Token}, State: state, Window: window, Grant: &r,
	}
}

// duplicates sends what must not run: other requests on every worker, and the
// same one again.
func (s *story) duplicates(ctx context.Context, began request, what string) error {
	for range s.d.steady {
		r, err := s.request(ctx)
		if err != nil {
			return err
		}
		if _, err := s.expect(ctx, s.d.worker(), r, false, what); err != nil {
			return err
		}
	}
	_, err := s.expect(ctx, s.d.worker(), s.again(began), false, what+", redelivered")
	return err
}

func completedRound(ctx context.Context, d *drill) error {
	s := d.ofPipeline("completed")
	began, a, err := s.burst(ctx)
	if err != nil {
		return err
	}
	if err := s.duplicates(ctx, began, "in flight"); err != nil {
		return err
	}
	if err := s.end(ctx, d.worker(), a, dedup.Completed); err != nil {
		return err
	}
	return s.duplicates(ctx, began, "completed")
}

func failedRound(ctx context.Context, d *drill) error {
	s := d.ofPipeline("failed")
	early, err := s.request(ctx)
	if err != nil {
		return err
	}
	began, a, err := s.burst(ctx)
	if err != nil {
		return err
	}
	if err := s.end(ctx, d.worker(), a, dedup.Failed); err != nil {
		return err
	}
	if _, err := s.expect(ctx, d.worker(), early, false, "made before the failure"); err != nil {
		return err
	}
	if _, err := s.expect(ctx, d.worker(), s.again(began), false, "redelivered after the failure"); err != nil {
		return err
	}
	retry, a, err := s.meant(ctx, false, "retried after the failure")
	if err != nil {
		return err
	}
	if err := s.duplicates(ctx, retry, "while the retry runs"); err != nil {
		return err
	}
	return s.end(ctx, d.worker(), a, dedup.Completed)
}

func rerunRound(ctx context.Context, d *drill) error {
	s := d.ofPipeline("rerun")
	_, a, err := s.burst(ctx)
	if err != nil {
		return err
	}
	if err := s.end(ctx, d.worker(), a, dedup.Canceled); err != nil {
		return err
	}
	first, a, err := s.meant(ctx, false, "retried after a cancel")
	if err != nil {
		return err
	}
	if err := s.end(ctx, d.worker(), a, dedup.Completed); err != nil {
		return err
	}
	if err := s.duplicates(ctx, first, "completed"); err != nil {
		return err
	}
	rerun, a, err := s.meant(ctx, true, "a meant rerun")
	if err != nil {
		return err
	}
	if err := s.duplicates(ctx, rerun, "while the rerun runs"); err != nil {
		return err
	}
	return s.end(ctx, d.worker(), a, dedup.Completed)
}

func attemptsRound(ctx context.Context, d *drill) error {
	s := d.ofStep("attempts")
	began, a, err := s.burst(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		before := a
		if a, err = s.expect(ctx, d.worker(), began, true, "another attempt of the owner"); err != nil || !a.runs() {
			return err
		}
		late, err := d.worker().ask(ctx, order{Settle: settlement(before, dedup.Completed)})
		if err != nil {
			return err
		}
		d.countWrite(late.NotOwner, "the attempt before")
	}
	return s.end(ctx, d.worker(), a, dedup.Completed)
}
