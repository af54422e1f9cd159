// Package executor runs light tasks: many at once, each within limits of the
// whole, of its tenant and of its target, and none at the cost of another. What
// may not run yet waits in a queue and holds no goroutine, slot or token there.
// Its limits are those of one process.
package executor

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/nofile"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/telemetry"
)

// Preparer checks a task and makes it ready to run; the registry of types is one.
// Its error is for people. It is safe for concurrent use.
type Preparer interface {
	Prepare(t task.Task) (task.Job, error)
}

// OutputChecker knows what types of tasks find out; the registry of types is one.
type OutputChecker interface {
	CheckOutput(typ string, out task.Output) error
}

// Config is what an executor is made of.
type Config struct {
	// Registry knows the types of tasks, and may be an [OutputChecker].
	Registry Preparer
	// Limits are those to begin with; its zero fields are the defaults.
	Limits Limits
	// Claims keeps tasks with a key from being done twice. Without it such a
	// task is invalid.
	Claims Claims
	// Audit hears of tasks whose key another has; of those of batches, of some.
	// Defaults to nobody.
	Audit Auditor
	// Observer hears what happens, for metrics. Defaults to nobody.
	Observer Observer
	// Logger takes a line for each task that fails by a fault in its type, and
	// for what is wrong with the executor itself; each task at debug level.
	// Defaults to none.
	Logger *zap.Logger
	// Tracer makes a span of each task, in the trace of its origin. Nil: none.
	Tracer trace.Tracer

	// files and delays are for tests: how many tasks may run by the files that
	// may be open, and how long goroutines wait for a CPU.
	files  int
	delays func() time.Duration
}

// Executor runs light tasks. It is safe for concurrent use.
type Executor struct {
	config Config
	log    *zap.Logger
	keys   *keys
	// files is how many tasks may run at once by the files that the process may
	// have open.
	files int
	// fallbacks are those of the limits.
	fallbacks atomic.Pointer[map[string]Fallback]

	mu     sync.Mutex
	limits Limits
	// cap is how many may run at once now; spare is the part of the limit that
	// the CPU allows.
	cap     int
	spare   float64
	seq     uint64
	whole   *gate
	nowhere *gate // the target of what has none
	targets *gates
	tenants *gates
	lanes   map[between]*lane
	ready   ranks[*lane]
	running []*item
	// dead are tasks whose circuit is open; unlock ends them.
	dead []*item
	// waiting counts tasks in lanes, single those of them that were submitted
	// one by one, held those whose result is not given yet, done the others.
	waiting, single, held int
	done, measured        uint64
	rate                  float64
	delay                 time.Duration

	// closing: no more are taken. handedBack: what runs was told to stop.
	closing, handedBack bool
	empty               chan struct{} // closed when closing and held is 0
	allGiven            func()
	stopMinding         context.CancelCauseFunc
	minding             sync.WaitGroup
}

// New returns an executor that runs until Close.
func New(cfg Config) (*Executor, error) {
	if cfg.Registry == nil {
		return nil, errors.New("an executor needs a registry of types")
	}
	limits, err := cfg.complete(cfg.Limits)
	if err != nil {
		return nil, err
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.delays == nil {
		cfg.delays = newDelays()
	}
	e := &Executor{
		config: cfg, log: telemetry.OrNop(cfg.Logger), files: cmp.Or(cfg.files, nofile.Room()), spare: 1,
		whole: &gate{scope: Whole}, nowhere: &gate{scope: PerTarget, lanes: map[*lane]struct{}{}},
		targets: newGates(PerTarget), tenants: newGates(PerTenant),
		lanes: map[between]*lane{}, empty: make(chan struct{}),
	}
	e.allGiven = sync.OnceFunc(func() { close(e.empty) })
	e.keys = newKeys(&cfg, e.log)
	e.apply(limits, time.Now())
	// It minds what runs until Close, not as long as whoever calls New.
	ctx, stop := context.WithCancelCause(context.Background())
	e.stopMinding = stop
	e.minding.Go(func() { e.mind(ctx) })
	return e, nil
}

// Submit runs a task and returns what it came to. It waits as long as the task
// waits and runs; when ctx ends before the task began, the task is skipped, and
// when it ends later, the task is told to stop and fails with the trigger user.
//
// The error says that the task was not taken: a *[RefusedError], after which it is
// worth asking again, or a *[task.Failure] with the trigger invalid. How a task
// went that was taken is in its result alone.
func (e *Executor) Submit(ctx context.Context, t task.Task) (task.Result, error) {
	it := &item{task: &t, ctx: ctx, to: &sink{results: make(chan task.Result, 1), left: 1}}
	if f := e.prepare(it); f != nil {
		return task.Result{}, f
	}
	if ctx.Err() != nil {
		return skipped(&t, run.TriggerUser, givenUp, 0), nil //nolint:nilerr // the result says it
	}
	if err := e.submit(it); err != nil {
		e.config.Observer.Refused(err.Reason)
		return task.Result{}, err
	}
	select {
	case r := <-it.to.results:
		return r, nil
	case <-ctx.Done():
		e.mu.Lock()
		if it.lane != nil {
			e.skip(it, run.TriggerUser, givenUp, time.Now())
			e.start(time.Now())
		}
		e.unlock()
		return <-it.to.results, nil
	}
}

// givenUp is why a task was skipped whose caller went away.
const givenUp = "its caller gave up before it began"

func (e *Executor) submit(it *item) *RefusedError {
	e.mu.Lock()
	defer e.unlock()
	if e.closing {
		return &RefusedError{Closing, shortestRetry}
	}
	now := time.Now()
	e.held++
	e.take(it, now)
	e.start(now)
	if it.lane == nil {
		return nil
	}
	var reason Reason
	switch {
	case e.single > e.limits.Queue || it.lane.tenant.crowded():
		reason = QueueFull
	case it.lane.target.crowded():
		reason = TargetFull
	default:
		return nil
	}
	err := &RefusedError{reason, e.retryAfter()}
	e.held--
	e.leave(it)
	return err
}

// take has a task wait, or end at once where its circuit is open. It is called
// with the lock held.
func (e *Executor) take(it *item, now time.Time) {
	if it.at != "" && e.targets.of(it.at, now).shut() {
		it.queued = now
		e.dead = append(e.dead, it)
		return
	}
	e.enqueue(it, now)
}

// prepare checks a task and makes it ready. A type may have a fault here too.
func (e *Executor) prepare(it *item) (f *task.Failure) {
	t := it.task
	switch {
	case t.Key != "" && e.keys == nil:
		return task.Failf(run.TriggerInvalid, "it has a key, but this executor has no Redis to claim keys in")
	case len(t.Key) > dedup.MaxKey:
		return task.Failf(run.TriggerInvalid, "its key has %d bytes, at most %d are allowed", len(t.Key), dedup.MaxKey)
	case t.Timeout < 0 || t.Timeout > task.MaxTimeout:
		return task.Failf(run.TriggerInvalid, "its timeout, %s, is not from 0 to %s", t.Timeout, task.MaxTimeout)
	case t.Priority < -maxPriority || t.Priority > maxPriority:
		return task.Failf(run.TriggerInvalid, "its priority, %d, is not from %d to %d", t.Priority, -maxPriority, maxPriority)
	}
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("a type of light task panicked", zap.String("type", t.Type), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
			f = task.Failf(run.TriggerInvalid, "the type %q has a fault: it panicked when it checked the task", t.Type)
		}
	}()
	job, err := e.config.Registry.Prepare(*t)
	if err != nil {
		return task.Failf(run.TriggerInvalid, "%v", err)
	}
	it.job, it.at = job, job.Target()
	return nil
}

const maxPriority = 100

const (
	shortestRetry = time.Second
	longestRetry  = time.Minute
)

// retryAfter is how long the queue takes to drain at the rate of now.
func (e *Executor) retryAfter() time.Duration {
	if e.rate <= 0 {
		return shortestRetry
	}
	seconds := min(float64(e.waiting)/e.rate, longestRetry.Seconds())
	return max(shortestRetry, time.Duration(seconds*float64(time.Second)).Round(time.Second))
}

// unlock ends what died while the lock was held, now that it is not.
func (e *Executor) unlock() {
	dead := e.dead
	e.dead = nil
	e.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	results := make([]task.Result, len(dead))
	for i, it := range dead {
		results[i] = e.stopped(it)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, it := range dead {
		e.config.Observer.Stopped()
		e.give(it, results[i])
	}
}

// stopped is the result of a task whose circuit is open.
func (e *Executor) stopped(it *item) task.Result {
	why := &task.Failure{
		Trigger: run.TriggerDependencyUnavailable, Retryable: true,
		Message: it.at + " is not well: its circuit is open, so it was not asked",
	}
	r := task.Result{
		ID: it.task.ID, Type: it.task.Type, Status: task.Failed, Error: why, Waited: time.Since(it.queued),
	}
	e.fallBack(it, &r)
	return r
}

// SetLimits changes the limits, at once and for all that wait. Zero fields are the
// defaults, as in Config. If they are not valid, the old ones stay.
func (e *Executor) SetLimits(l Limits) error {
	limits, err := e.config.complete(l)
	e.config.Observer.Loaded(err == nil)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.unlock()
	now := time.Now()
	e.apply(limits, now)
	for _, l := range e.lanes {
		l.to(&e.ready)
	}
	e.start(now)
	return nil
}

// apply sets limits that are complete. It is called with the lock held.
func (e *Executor) apply(l Limits, now time.Time) {
	e.limits = l
	e.fallbacks.Store(&l.Fallbacks)
	e.whole.limit(Share{Rate: l.Rate, Burst: l.Burst}, now)
	e.tenants.limit(l.Tenant, l.Tenants, l.Breaker, l.Remembered, now)
	e.targets.limit(l.Target, l.Targets, l.Breaker, l.Remembered, now)
	e.resize()
}

// resize sets how many may run at once.
func (e *Executor) resize() {
	e.cap = max(1, min(e.files, int(e.spare*float64(e.limits.Concurrency))))
}
