package activities

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/telemetry"
	"belay.run/internal/workspace"
)

// ResourcesConfig is what resources on a host need. All is required save what
// says otherwise.
type ResourcesConfig struct {
	Client    client.Client
	Namespace string
	Host      *workspace.Host
	Proc      *proc.Host
	Secrets   secret.Provider
	// Environment is what scripts get of the worker's own variables.
	Environment []string
	// Records and Ledger know what is held; without Redis there is no ledger.
	Records *resource.Records
	Ledger  *resource.Ledger
	// Kinds are those that need no attempt of a step: custom is not among them.
	Kinds []resource.Kind
	// Meter hears what is given back, or is not. Defaults to one that does not.
	Meter Meter
	// Logger defaults to one that says nothing.
	Logger *zap.Logger
}

// Resources gives back what attempts of steps acquired, and holds the activity
// that does so where an attempt could not. It is registered on the queues of a
// host and on those that hosts share.
type Resources struct {
	ResourcesConfig

	book    resource.Book
	keepers keepers
	holds   stageHolds
}

// NewResources returns the Resources of a host.
func NewResources(cfg ResourcesConfig) *Resources {
	cfg.Logger = telemetry.OrNop(cfg.Logger)
	cfg.Meter = meterOr(cfg.Meter)
	return &Resources{
		ResourcesConfig: cfg,
		book:            resource.Book{Records: cfg.Records, Ledger: cfg.Ledger, Log: cfg.Logger},
	}
}

// ReleaseResources gives back what is named, each once, and says what became of
// it. What it cannot release it leaves to be tried again. To release what is released, or was never acquired, changes
// nothing.
func (r *Resources) ReleaseResources(ctx context.Context, in ReleaseInput) (*ReleaseResult, error) {
	unstick(ctx, r.Client, r.Namespace)
	defer beating(ctx)()
	return &ReleaseResult{Entries: r.release(ctx, r.known(ctx, &in), in.Last)}, nil
}

// known is all that is to be released, the last acquired first.
func (r *Resources) known(ctx context.Context, in *ReleaseInput) []resource.Entry {
	all := slices.Clone(in.Entries)
	add := func(more []resource.Entry) {
		for _, e := range more {
			if in.Stage && !ofStage(&e, in.Node) {
				continue
			}
			if i := slices.IndexFunc(all, func(a resource.Entry) bool { return a.Holder() == e.Holder() }); i < 0 {
				all = append(all, e)
			} else if e.Since.After(all[i].Since) {
				all[i] = e
			}
		}
	}
	if in.RunKey != "" {
		here, err := r.Records.Of(in.RunKey, in.Node)
		if err != nil {
			r.Logger.Warn("could not read all records of resources", zap.Error(err))
		}
		add(here)
		noted, unknown := r.Ledger.Of(ctx, in.RunKey)
		add(slices.DeleteFunc(noted, func(e resource.Entry) bool { return !run.Within(e.Node, in.Node) }))
		if r.Ledger == nil || unknown != nil {
			// What was never written down here was never acquired here.
			add(slices.DeleteFunc(in.Declared, func(e resource.Entry) bool { return err == nil && e.Host == r.Host.ID() }))
		}
	}
	slices.SortStableFunc(all, func(a, b resource.Entry) int { return b.Acquired.Compare(a.Acquired) })
	return all
}

// release tries each entry once, one after the other, since what was acquired
// later may need what was acquired before. None keeps another from its turn.
func (r *Resources) release(ctx context.Context, entries []resource.Entry, last bool) []resource.Entry {
	proved := map[string]error{}
	out := make([]resource.Entry, 0, len(entries))
	for i, e := range entries {
		if !e.Open() {
			out = append(out, e)
			continue
		}
		err := r.mayRelease(ctx, &e, proved)
		if err == nil {
			var kind resource.Kind
			if kind, err = r.kind(e.Kind); err == nil {
				err = r.releaseOne(ctx, kind, &e, share(ctx, len(entries)-i))
			}
		} else {
			e.Error = err.Error()
		}
		if err != nil && last {
			r.note(ctx, &e, run.ResourceLeaked)
		}
		out = append(out, e)
	}
	return out
}

// errElsewhere says that only another host can release something.
var errElsewhere = errors.New("only its own host can give it back, when it returns")

// mayRelease reports what keeps an entry from being released here and now: it is
// on another host, or processes that use it may live.
func (r *Resources) mayRelease(ctx context.Context, e *resource.Entry, proved map[string]error) error {
	if e.Host != r.Host.ID() {
		if resource.HostBound(e.Kind) {
			return fmt.Errorf("host %s does not answer: %w", e.Host, errElsewhere)
		}
		return nil
	}
	if e.Scope == resource.ScopePipeline || e.Kind == resource.KindWorkspace || !resource.Exclusive(e.Kind) {
		return nil
	}
	node := processNode(e.RunKey, e.Node)
	if _, asked := proved[node]; !asked {
		proved[node] = r.Proc.EndNode(ctx, node)
	}
	if err := proved[node]; err != nil {
		return fmt.Errorf("it is kept as long as processes may use it: %w", err)
	}
	return nil
}

// kind is the kind by its name.
func (r *Resources) kind(name string) (resource.Kind, error) {
	if name == resource.KindCustom {
		return &resource.Custom{Scripts: &scripts{of: r}}, nil
	}
	for _, k := range r.Kinds {
		if k.Name() == name {
			return k, nil
		}
	}
	return nil, fmt.Errorf("this worker knows no kind of resource %q", name)
}

// share is how long the first of n that are released one after the other may take,
// so that each has its turn in the time that ctx leaves, and can be told of.
func share(ctx context.Context, n int) time.Duration {
	end, bounded := ctx.Deadline()
	if !bounded {
		return ReleaseTry
	}
	each := time.Until(end) / time.Duration(n)
	return min(ReleaseTry, max(each-releaseLate, each/2))
}

// releaseOne tries once to give an entry back, within a bound. A kind that panics
// or does not come back counts as one that failed.
func (r *Resources) releaseOne(ctx context.Context, kind resource.Kind, e *resource.Entry, within time.Duration) error {
	if ofStage(e, e.Node) {
		r.holds.drop(nodeKey{e.RunKey, e.Node}, e.Attempt)
	}
	r.keepers.stop(e)
	e.Attempts++
	state := run.ResourceReleasing
	if e.State == run.ResourceLeaked {
		state = e.State // until it is released: people are told once, and the janitor tries less and less often
	}
	r.note(ctx, e, state)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it took more than %s", within.Round(time.Millisecond)))
	defer cancel()
	tried := *e // what hangs may still write to it
	done := make(chan error, 1)
	go func() { done <- guarded(func() error { return kind.Release(ctx, &tried) }) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		// It has heard of that, too, and has a moment to say how it ended.
		timer := time.NewTimer(releaseLate)
		defer timer.Stop()
		select {
		case err = <-done:
		case <-timer.C:
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		e.Error = err.Error()
		r.Meter.ReleaseFailed(e.Kind)
		r.Logger.Info("a resource could not be given back yet", zap.String("kind", e.Kind), zap.String("name", e.Name),
			zap.String("run", e.RunKey), zap.String("node", e.Node), zap.Int("tries", e.Attempts), zap.Error(err))
		return err
	}
	e.Error = ""
	r.note(context.WithoutCancel(ctx), e, run.ResourceReleased)
	r.Meter.Released(e.Kind)
	return nil
}

// releaseLate is how long one waits for a release that was told to stop: a script
// has its grace period.
const releaseLate = scriptGrace + time.Second

// note writes a state down. What cannot be written is found again by whoever
// releases next, which changes nothing then.
func (r *Resources) note(ctx context.Context, e *resource.Entry, state run.ResourceState) {
	if err := r.book.Note(ctx, e, state); err != nil {
		r.Logger.Warn("could not write down what became of a resource", zap.Error(err))
	}
}

// guarded makes a panic an error: one faulty kind is not to end the worker, or
// the release of others.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return f()
}

// ReleaseHere gives back what a host knows of a stage that has ended, trying once
// each. What was tried in vain is let be for a while first, longer and longer, as
// the janitor does; rest says that there is such.
func ReleaseHere(ctx context.Context, r *Resources, runKey, node string) (tried []resource.Entry, rest bool, err error) {
	entries, err := r.Records.Of(runKey, node)
	due := slices.DeleteFunc(entries, func(e resource.Entry) bool {
		soon := e.Attempts > 0 && time.Since(e.Since) < patienceAfter(e.Attempts)
		rest = rest || soon
		return soon
	})
	return r.release(ctx, due, false), rest, err
}

// releaseHere gives back what of a run this host knows and is wanted, trying once.
func (r *Resources) releaseHere(ctx context.Context, runKey string, wanted func(*resource.Entry) bool) ([]resource.Entry, error) {
	entries, err := r.Records.All()
	entries = slices.DeleteFunc(entries, func(e resource.Entry) bool { return e.RunKey != runKey || !wanted(&e) })
	return r.release(ctx, entries, false), err
}

// ofStage reports whether a stage itself has acquired something.
func ofStage(e *resource.Entry, node string) bool {
	return e.Node == node && e.Scope == resource.ScopeStage && e.Kind != resource.KindWorkspace
}

// StageOf is the stage that a node lies in.
func StageOf(node string) string { return path.Dir(node) }

// TempDirs are the temporary directories of attempts on a host.
func TempDirs(host *workspace.Host) *resource.TempDirs {
	return &resource.TempDirs{
		Base:   func(e *resource.Entry) string { return host.Dirs(e.RunKey, stageOfRun(e)).Temp },
		Remove: host.Remove,
	}
}
