package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"belay.run/dev/bench/load"
	"belay.run/dev/redisd"
	"belay.run/dev/target"
)

const (
	// publishedRate, publishedP99, publishedSystem and publishedMemory are the
	// figures to beat: tasks a second, in ms, percent and MB.
	publishedRate   = 12_400
	publishedP99    = 112
	publishedSystem = 7
	publishedMemory = 1_400
	// slowRate is how many tasks of slowAnswer come in a second where ten thousand
	// are to be in flight, slowRoom how many may be.
	slowRate   = 9_000
	slowAnswer = time.Second
	slowRoom   = 12_000
	openRoom   = 10_000
	// manyWait is how many tasks wait at once.
	manyWait = 100_000
	// fewFiles is how many files a process may open in the end, fewFilesLoad how
	// many tasks it then is given at once.
	fewFiles     = 512
	fewFilesLoad = 5_000
)

// lightEffort is how long light tasks are measured.
type lightEffort struct {
	rounds int
	// levels are how many tasks are in flight at once.
	levels []int
	// each is how long one load counts, open that at a rate.
	each, open time.Duration
	// peers are the levels at which peers take part that are known to be slow, and
	// peerRounds in how many rounds.
	peers      []int
	peerRounds int
}

func newLightEffort(rounds int) lightEffort {
	if rounds < fullRounds {
		return lightEffort{
			rounds: rounds, each: 600 * time.Millisecond, open: 5 * time.Second,
			levels: []int{100, 1_000, 10_000}, peers: []int{1_000}, peerRounds: rounds,
		}
	}
	// Fewer rounds than elsewhere: there are many loads, and each process of them is
	// new.
	const lightRounds = 5
	all := []int{100, 1_000, 2_000, 5_000, 10_000}
	return lightEffort{rounds: lightRounds, each: 2 * time.Second, open: time.Minute, levels: all, peers: all, peerRounds: 2}
}

// lightBench is what light tasks are measured on: a target in a process of its own,
// and a Redis.
type lightBench struct {
	effort   lightEffort
	target   *process
	redis    *redisd.Server
	address  string
	progress io.Writer
	report   *Report
	// run puts a load on the target; in tests it is not there.
	run func(ctx context.Context, spec load.Spec) (load.Result, error)
}

// measureLight measures the executor of light tasks beside what does the same
// without it. Each load runs in a process of its own; the loads of a round follow
// one another, so that what disturbs the machine for a while disturbs them all.
func measureLight(ctx context.Context, r *Report, progress io.Writer) (err error) {
	b := &lightBench{effort: newLightEffort(r.Rounds), progress: progress, report: r, run: runLoad}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return err
	}
	for _, level := range b.effort.levels {
		if err := b.closed(ctx, level); err != nil {
			return err
		}
	}
	for _, measure := range []func(context.Context) error{b.published, b.slow, b.waiting, b.files, b.heavy} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *lightBench) open(ctx context.Context) error {
	var err error
	if b.target, err = startChild(ctx, childTarget); err != nil {
		return err
	}
	if b.redis, err = redisd.Start(ctx, redisd.Options{}); err != nil {
		return err
	}
	u, err := url.Parse(b.redis.URL)
	if err != nil {
		return fmt.Errorf("reading the address of Redis: %w", err)
	}
	b.address = u.Host
	return nil
}

func (b *lightBench) close() error {
	var errs []error
	if b.target != nil {
		errs = append(errs, b.target.stop())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.Stop())
	}
	return errors.Join(errs...)
}

// spec is a load of so many tasks in flight at once.
func (b *lightBench) spec(kind load.Kind, inFlight int) load.Spec {
	const warm = 400 * time.Millisecond
	s := load.Spec{
		Kind: kind, Target: "http://" + b.target.address() + "/", Redis: b.address, InFlight: inFlight,
		Warm: warm, For: b.effort.each,
	}
	if b.target.cmd != nil {
		s.Others = append(s.Others, b.target.cmd.Process.Pid)
	}
	if b.redis != nil && b.redis.PID > 0 {
		s.Others = append(s.Others, b.redis.PID)
	}
	return s
}

// load takes one measurement, and notes it.
func (b *lightBench) load(ctx context.Context, group *loads, spec load.Spec) error {
	r, err := b.run(ctx, spec)
	if err != nil {
		return err
	}
	name := string(spec.Kind)
	if spec.Kind == load.Threads {
		name = fmt.Sprintf("%d %s", spec.Threads, spec.Kind)
	}
	group.add(name, spec, r)
	// Nobody need read how it goes on.
	_, _ = fmt.Fprintf(b.progress, "light %s, %s: %.0f/s, p99 %.0f ms, %d errors %s\n", group.name, name, r.QPS, r.P99, r.Errors, r.Error)
	return nil
}

// closed measures so many tasks in flight at once.
func (b *lightBench) closed(ctx context.Context, level int) error {
	group := newLoads(fmt.Sprintf("%d in flight", level))
	specs := []load.Spec{b.spec(load.Bare, level), b.spec(load.Executor, level), b.spec(load.Keyed, level)}
	own := len(specs)
	if slices.Contains(b.effort.peers, level) {
		for _, threads := range []int{200, 2_000} {
			pool := b.spec(load.Threads, level)
			pool.Threads = threads
			specs = append(specs, pool)
		}
		specs = append(specs, b.spec(load.Asynq, level))
	}
	for round := range b.effort.rounds {
		takePart := len(specs)
		if round >= b.effort.peerRounds {
			takePart = own
		}
		for i := range takePart {
			if err := b.load(ctx, group, specs[(i+round)%takePart]); err != nil {
				return err
			}
		}
	}
	b.report.Loads = append(b.report.Loads, group.rows(target.After)...)
	b.report.Figures = append(b.report.Figures, group.closedFigures(level, target.After)...)
	return nil
}

// published measures tasks that come at the rate that was published.
func (b *lightBench) published(ctx context.Context) error {
	group := newLoads(fmt.Sprintf("%d/s of %s", publishedRate, target.After))
	if err := b.arrivals(ctx, group, publishedRate, openRoom, "", b.effort.open); err != nil {
		return err
	}
	b.report.Loads = append(b.report.Loads, group.rows(0)...)
	b.report.Figures = append(b.report.Figures, group.publishedFigures()...)
	return nil
}

// slow measures tasks of a second, of which ten thousand are in flight.
func (b *lightBench) slow(ctx context.Context) error {
	group := newLoads(fmt.Sprintf("%d/s of %s", slowRate, slowAnswer))
	const most = 20 * time.Second
	if err := b.arrivals(ctx, group, slowRate, slowRoom, "?after="+slowAnswer.String(), min(most, b.effort.open)); err != nil {
		return err
	}
	b.report.Loads = append(b.report.Loads, group.rows(0)...)
	b.report.Figures = append(b.report.Figures, group.slowFigures()...)
	return nil
}

// arrivals puts a load on the target that comes at a rate.
func (b *lightBench) arrivals(ctx context.Context, group *loads, rate float64, room int, query string, counts time.Duration) error {
	const warm = 2500 * time.Millisecond // the slow ones have to end for the first time
	for _, kind := range []load.Kind{load.Bare, load.Executor} {
		spec := b.spec(kind, room)
		spec.Rate, spec.Warm, spec.For = rate, warm, counts
		spec.Target += query
		if err := b.load(ctx, group, spec); err != nil {
			return err
		}
	}
	return nil
}

// waiting measures the memory of tasks that wait.
func (b *lightBench) waiting(ctx context.Context) error {
	group := newLoads(fmt.Sprintf("%d waiting", manyWait))
	for _, kind := range []load.Kind{load.Bare, load.Executor} {
		spec := b.spec(kind, 1)
		spec.Waiting, spec.Warm = manyWait, 3*time.Second // until all of them wait
		spec.Target += "?after=1m"
		if err := b.load(ctx, group, spec); err != nil {
			return err
		}
	}
	b.report.Figures = append(b.report.Figures, group.waitingFigure())
	return nil
}

// files measures what comes of a process that may open few files.
func (b *lightBench) files(ctx context.Context) error {
	group := newLoads(fmt.Sprintf("%d in flight, %d files", fewFilesLoad, fewFiles))
	for _, kind := range []load.Kind{load.Bare, load.Executor} {
		spec := b.spec(kind, fewFilesLoad)
		spec.Files = fewFiles
		if err := b.load(ctx, group, spec); err != nil {
			return err
		}
	}
	b.report.Figures = append(b.report.Figures, group.filesFigure())
	return nil
}
