package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"belay.run/dev/bench/load"
)

// Load is what came of one load over all rounds: medians, the most of memory, the
// sum of errors.
type Load struct {
	Load string  `json:"load"`
	Name string  `json:"name"`
	QPS  float64 `json:"qps"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	// Tasks is how many ended in all rounds, Errors how many of those failed.
	Tasks  int    `json:"tasks"`
	Errors int    `json:"errors"`
	Error  string `json:"error,omitempty"`
	// System is how many percent of the machine's CPUs the kernel took for it, Cost
	// how many microseconds of CPU a task took, and Others how many it took of the
	// target and of Redis. Allow is how many tasks a second all CPUs could do at
	// that price.
	System float64 `json:"system_percent"`
	Cost   float64 `json:"cpu_us"`
	Others float64 `json:"others_cpu_us"`
	Allow  float64 `json:"cpus_allow"`
	// Memory is in MB.
	Memory float64 `json:"memory_mb"`
	// Bound is what bounds the rate, where it is known.
	Bound string `json:"bound,omitempty"`
}

// Goal is what a figure is held to.
type Goal struct {
	Want string `json:"want"`
	Met  bool   `json:"met"`
	// Bound is what bounded it where it was not met.
	Bound string `json:"bound,omitempty"`
}

// loads are what was measured under one load, by who ran the tasks.
type loads struct {
	name  string
	names []string
	specs map[string]load.Spec
	taken map[string][]load.Result
}

func newLoads(name string) *loads {
	return &loads{name: name, specs: map[string]load.Spec{}, taken: map[string][]load.Result{}}
}

func (l *loads) add(name string, spec load.Spec, r load.Result) {
	if l.taken[name] == nil {
		l.names = append(l.names, name)
	}
	l.specs[name] = spec
	l.taken[name] = append(l.taken[name], r)
}

// of are the values of one field over all rounds.
func (l *loads) of(name string, field func(load.Result) float64) []float64 {
	values := make([]float64, len(l.taken[name]))
	for i, r := range l.taken[name] {
		values[i] = field(r)
	}
	return values
}

func (l *loads) sum(name string, field func(load.Result) float64) (sum float64) {
	for _, v := range l.of(name, field) {
		sum += v
	}
	return sum
}

// What figures are of.
func qps(r load.Result) float64      { return r.QPS }
func tail(r load.Result) float64     { return r.P99 }
func system(r load.Result) float64   { return 100 * r.System }
func busy(r load.Result) float64     { return r.Busy }
func memoryMB(r load.Result) float64 { return float64(r.Memory) / 1e6 }
func failed(r load.Result) float64   { return float64(r.Errors) }
func capped(r load.Result) float64   { return float64(r.Cap) }
func noFiles(r load.Result) float64  { return float64(r.NoFiles) }
func price(r load.Result) float64    { return r.Cost + r.Others }

// rows are what is shown of them, in the order in which they first came. A task
// takes answer at least; 0: there is nothing to say of what bounds them.
func (l *loads) rows(answer time.Duration) []Load {
	rows := make([]Load, len(l.names))
	for i, name := range l.names {
		row := Load{
			Load: l.name, Name: name, QPS: median(l.of(name, qps)), P99: median(l.of(name, tail)),
			P50:    median(l.of(name, func(r load.Result) float64 { return r.P50 })),
			P999:   median(l.of(name, func(r load.Result) float64 { return r.P999 })),
			Tasks:  int(l.sum(name, func(r load.Result) float64 { return float64(r.Ended) })),
			Errors: int(l.sum(name, failed)), System: median(l.of(name, system)),
			Cost:   median(l.of(name, func(r load.Result) float64 { return r.Cost })),
			Others: median(l.of(name, func(r load.Result) float64 { return r.Others })),
			Allow:  l.allow(name), Bound: l.bound(name, answer),
		}
		for _, r := range l.taken[name] {
			row.Memory = max(row.Memory, memoryMB(r))
			if row.Error == "" {
				row.Error = r.Error
			}
		}
		rows[i] = row
	}
	return rows
}

// bound is what bounds how many tasks end: how long the target takes, where as
// many are asked of it as can be; or the CPUs, where none of them is idle.
func (l *loads) bound(name string, answer time.Duration) string {
	const nearly = 0.9
	if answer > 0 {
		spec := l.specs[name]
		at := spec.InFlight
		if spec.Threads > 0 {
			at = min(at, spec.Threads)
		}
		if median(l.of(name, qps)) >= nearly*float64(at)/answer.Seconds() {
			if at < spec.InFlight {
				return "its threads"
			}
			return "the target"
		}
	}
	limits := []string{}
	if median(l.of(name, busy)) >= nearly {
		limits = append(limits, fmt.Sprintf("the CPUs, which allow %s/s", number(l.allow(name))))
	}
	if allowed := int(median(l.of(name, capped))); allowed > 0 && allowed < l.specs[name].InFlight {
		limits = append(limits, fmt.Sprintf("its own cap, %d at once", allowed))
	}
	return strings.Join(limits, "; ")
}

// allow is how many tasks a second all CPUs could do, if they did nothing else.
func (l *loads) allow(name string) float64 {
	us := median(l.of(name, price))
	if us == 0 {
		return 0
	}
	return float64(runtime.NumCPU()) * 1e6 / us
}

// beside is a figure of ours beside that of a peer, round by round.
func (l *loads) beside(name, unit, ours, peer string, field func(load.Result) float64) Figure {
	taken := samples{ours: l.of(ours, field), theirs: l.of(peer, field)}
	for i, v := range taken.ours {
		if i < len(taken.theirs) && taken.theirs[i] > 0 {
			taken.ratios = append(taken.ratios, v/taken.theirs[i])
		}
	}
	if len(taken.ratios) == 0 {
		taken.ratios = []float64{0}
	}
	return subject{name: name, unit: unit, peer: peer}.figure(name, taken, median)
}

// wants holds a figure to a goal.
func (f Figure) wants(met bool, bound, format string, args ...any) Figure {
	f.Goal = &Goal{Want: fmt.Sprintf(format, args...), Met: met}
	if !met {
		f.Goal.Bound = bound
	}
	return f
}

func (f Figure) atLeast(ratio float64, bound string) Figure {
	return f.wants(f.Ratio >= ratio, bound, "ratio ≥ %.1f", ratio)
}

func (f Figure) atMost(ratio float64, bound string) Figure {
	return f.wants(f.Ratio <= ratio, bound, "ratio ≤ %.1f", ratio)
}

func (l *loads) closedFigures(level int, answer time.Duration) []Figure {
	const ours, keyed, bare, asynq = string(load.Executor), string(load.Keyed), string(load.Bare), string(load.Asynq)
	prefix := fmt.Sprintf("light_%d", level)
	figures := []Figure{
		l.beside(prefix, "tasks/s", ours, bare, qps).atLeast(0.9, l.bound(ours, answer)),
		l.beside(prefix+"_dedup", "tasks/s", keyed, bare, qps).atLeast(0.7, l.bound(keyed, answer)),
	}
	if level == 1_000 {
		figures = append(figures,
			l.beside(prefix+"_p99", "ms", ours, bare, tail).atMost(1.3, l.bound(ours, 0)),
			l.beside(prefix+"_cpu", "µs", ours, bare, price), l.beside(prefix+"_dedup_cpu", "µs", keyed, bare, price))
	}
	if len(l.taken[asynq]) > 0 {
		figures = append(figures, l.beside(prefix+"_asynq", "tasks/s", ours, asynq, qps).atLeast(2, l.bound(ours, answer)))
	}
	return append(figures, l.faults(prefix+"_errors", ours, bare))
}

// faults are how many tasks failed.
func (l *loads) faults(name, ours, peer string) Figure {
	f := l.beside(name, "tasks", ours, peer, failed)
	return f.wants(l.sum(ours, failed) == 0, l.bound(ours, 0), "none")
}

func (l *loads) publishedFigures() []Figure {
	const ours, bare, peer = string(load.Executor), string(load.Bare), "as published"
	prefix := fmt.Sprintf("light_open_%d", publishedRate)
	beside := func(name, unit string, published float64, field func(load.Result) float64) Figure {
		v := median(l.of(ours, field))
		f := Figure{Name: prefix + name, Value: v, Unit: unit, Min: v, Max: v, Peer: peer, PeerValue: published, Ratio: v / published}
		return f.wants(v < published, l.bound(ours, 0), "< %.0f %s", published, unit)
	}
	kept := l.beside(prefix+"_kept", "tasks/s", ours, bare, qps)
	return []Figure{
		kept.wants(kept.Value >= 0.99*publishedRate, l.bound(ours, 0), "%d tasks/s", publishedRate),
		beside("_p99", "ms", publishedP99, tail),
		beside("_system", "% of the CPUs", publishedSystem, system),
		beside("_memory", "MB", publishedMemory, memoryMB),
		l.faults(prefix+"_errors", ours, bare),
	}
}

func (l *loads) slowFigures() []Figure {
	const ours, bare = string(load.Executor), string(load.Bare)
	prefix := fmt.Sprintf("light_open_%d_1s", slowRate)
	most := l.beside(prefix+"_in_flight", "tasks", ours, bare, func(r load.Result) float64 { return float64(r.Most) })
	return []Figure{
		most, l.beside(prefix+"_p99", "ms", ours, bare, tail).atMost(1.2, l.bound(ours, 0)),
		l.faults(prefix+"_errors", ours, bare),
	}
}

func (l *loads) waitingFigure() Figure {
	const most = 500
	f := l.beside(fmt.Sprintf("light_waiting_%d", manyWait), "MB", string(load.Executor), string(load.Bare), memoryMB)
	return f.wants(f.Value < most, "", "< %d MB", most)
}

func (l *loads) filesFigure() Figure {
	f := l.beside("light_too_many_files", "tasks", string(load.Executor), string(load.Bare), noFiles)
	return f.wants(f.Value == 0 && l.sum(string(load.Executor), failed) == 0, "", "none, and no other error")
}
