package executor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/outbound"
	"belay.run/internal/task"
)

// Limits are what an executor keeps to. A zero field is its default.
type Limits struct {
	// Concurrency is how many tasks run at once. Defaults to 1,000.
	Concurrency int `yaml:"concurrency"`
	// Queue is how many tasks may wait that were submitted one by one. Defaults
	// to 10,000.
	Queue int `yaml:"queue"`
	// Timeout is that of a task that has none of its own. Defaults to 5 s.
	Timeout time.Duration `yaml:"timeout"`
	// Rate is how many tasks start in a second, Burst how many may at once after
	// a pause. Rate defaults to no limit, Burst to a tenth of Rate.
	Rate  float64 `yaml:"rate"`
	Burst int     `yaml:"burst"`
	// Tenant holds for each tenant, Tenants for those named.
	Tenant  Share            `yaml:"tenant"`
	Tenants map[string]Share `yaml:"tenants"`
	// Target holds for each target, Targets for those named, as "host:port". Its
	// InFlight defaults to a quarter of Concurrency, its Queue to a quarter of
	// Queue.
	Target  Share            `yaml:"target"`
	Targets map[string]Share `yaml:"targets"`
	// Breaker is the circuit breaker of each target.
	Breaker Breaker `yaml:"breaker"`
	// Fallbacks, by the name of the type of tasks. Defaults to none.
	Fallbacks map[string]Fallback `yaml:"fallbacks"`
	// Remembered is how many targets, and how many tenants, are remembered when
	// they have no tasks: the state of their buckets and breakers. Defaults to
	// 10,000.
	Remembered int `yaml:"remembered"`
	// Window is how long a key that was done blocks others. Defaults to 24 h.
	Window time.Duration `yaml:"window"`
	// Delay is how long goroutines may wait for a CPU, at the 99th percentile,
	// before fewer tasks run at once, down to a tenth. Negative: no matter.
	// Defaults to 100 ms.
	Delay time.Duration `yaml:"delay"`
}

// Share is the limits of one tenant or target.
type Share struct {
	// InFlight is how many of its tasks run at once, Queue how many may wait.
	// Negative: as many as of all. Defaults to what all have of its kind.
	InFlight int `yaml:"in_flight"`
	Queue    int `yaml:"queue"`
	// Rate and Burst are as those of the whole; a negative rate is no limit.
	Rate  float64 `yaml:"rate"`
	Burst int     `yaml:"burst"`
}

// Breaker is when a circuit opens and closes again.
type Breaker struct {
	// Off: never.
	Off bool `yaml:"off"`
	// Ratio of tasks that failed by the target's fault, of at least Min within
	// Window, at which it opens. They default to 0.5, 20 and 10 s.
	Ratio  float64       `yaml:"ratio"`
	Min    int           `yaml:"min"`
	Window time.Duration `yaml:"window"`
	// Open is how long it then stays open. Defaults to 5 s.
	Open time.Duration `yaml:"open"`
	// Probes is how many tasks are let through after that: if all go well it
	// closes, if one does not it opens again. Defaults to 3.
	Probes int `yaml:"probes"`
}

const (
	maxConcurrency = 1_000_000
	// quarter is the part of the whole that a target has.
	quarter = 4
	// maxFile bounds a file of limits.
	maxFile = 1 << 20
)

// LoadLimits reads limits from a file in YAML, of which JSON is a part. An unknown
// field is an error.
func LoadLimits(path string) (Limits, error) {
	text, err := (&watch{path: path}).read()
	if err != nil {
		return Limits{}, err
	}
	l, err := parseLimits(text)
	if err != nil {
		return Limits{}, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// parseLimits reads limits and checks them.
func parseLimits(text []byte) (Limits, error) {
	if len(text) > maxFile {
		return Limits{}, fmt.Errorf("more than %d bytes", maxFile)
	}
	var l Limits
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&l); err != nil && !errors.Is(err, io.EOF) {
		return Limits{}, err
	}
	if err := dec.Decode(new(Limits)); !errors.Is(err, io.EOF) {
		return Limits{}, errors.New("more than one document")
	}
	_, err := l.complete()
	return l, err
}

// complete returns the limits with their defaults, or what is wrong with them, all
// of it.
func (l Limits) complete() (Limits, error) {
	err := l.check()
	l.Concurrency = cmp.Or(l.Concurrency, 1_000)
	l.Queue = cmp.Or(l.Queue, 10_000)
	l.Timeout = cmp.Or(l.Timeout, 5*time.Second)
	l.Burst = burst(l.Rate, l.Burst)
	l.Target.InFlight = cmp.Or(l.Target.InFlight, max(1, l.Concurrency/quarter))
	l.Target.Queue = cmp.Or(l.Target.Queue, max(1, l.Queue/quarter))
	l.Tenant.InFlight = cmp.Or(l.Tenant.InFlight, -1)
	l.Tenant.Queue = cmp.Or(l.Tenant.Queue, -1)
	l.Breaker.Ratio = cmp.Or(l.Breaker.Ratio, 0.5)
	l.Breaker.Min = cmp.Or(l.Breaker.Min, 20)
	l.Breaker.Window = cmp.Or(l.Breaker.Window, 10*time.Second)
	l.Breaker.Open = cmp.Or(l.Breaker.Open, 5*time.Second)
	l.Breaker.Probes = cmp.Or(l.Breaker.Probes, 3)
	l.Remembered = cmp.Or(l.Remembered, 10_000)
	l.Window = cmp.Or(l.Window, 24*time.Hour)
	l.Targets = canonical(l.Targets)
	l.Delay = cmp.Or(l.Delay, 100*time.Millisecond)
	return l, err
}

// canonical has limits by the names that targets have.
func canonical(targets map[string]Share) map[string]Share {
	named := make(map[string]Share, len(targets))
	for name, s := range targets {
		named[outbound.Canonical(name)] = s
	}
	return named
}

// share is what holds for one, of what holds for each and for those named.
func share(each Share, named map[string]Share, name string) Share {
	s := named[name]
	if s.Rate == 0 {
		s.Rate, s.Burst = each.Rate, cmp.Or(s.Burst, each.Burst)
	}
	s.InFlight, s.Queue = cmp.Or(s.InFlight, each.InFlight), cmp.Or(s.Queue, each.Queue)
	s.Burst = burst(s.Rate, s.Burst)
	return s
}

// burst is that of a rate: one that was given, or a tenth of a second's tasks.
func burst(rate float64, given int) int {
	if given > 0 {
		return given
	}
	return max(1, int(math.Ceil(rate/10)))
}

// check says all that is wrong.
func (l Limits) check() error {
	var errs []error
	within := func(name string, v, low, high float64) {
		if v != 0 && !(v >= low && v <= high) { // not a number is outside too
			errs = append(errs, fmt.Errorf("%s: %v is not from %v to %v", name, v, low, high))
		}
	}
	lasts := func(name string, d, low, high time.Duration) {
		if d != 0 && (d < low || d > high) {
			errs = append(errs, fmt.Errorf("%s: %s is not from %s to %s", name, d, low, high))
		}
	}
	rates := func(name string, rate float64, burst int) {
		within(name+"rate", rate, 1e-3, 1e9)
		within(name+"burst", float64(burst), 1, maxConcurrency)
	}
	shares := func(name string, s Share) {
		within(name+".in_flight", float64(s.InFlight), -1, maxConcurrency)
		within(name+".queue", float64(s.Queue), -1, maxConcurrency)
		rates(name+".", max(s.Rate, 0), s.Burst)
	}
	within("concurrency", float64(l.Concurrency), 1, maxConcurrency)
	within("queue", float64(l.Queue), 1, 10*maxConcurrency)
	lasts("timeout", l.Timeout, time.Millisecond, task.MaxTimeout)
	rates("", l.Rate, l.Burst)
	shares("tenant", l.Tenant)
	shares("target", l.Target)
	for _, name := range sortedNames(l.Tenants) {
		shares("tenants."+name, l.Tenants[name])
	}
	seen := map[string]string{}
	for _, name := range sortedNames(l.Targets) {
		shares("targets."+name, l.Targets[name])
		same := outbound.Canonical(name)
		if other, twice := seen[same]; twice {
			errs = append(errs, fmt.Errorf("targets.%s: it is the same as %s", name, other))
		}
		seen[same] = name
	}
	within("breaker.ratio", l.Breaker.Ratio, 0.01, 1)
	within("breaker.min", float64(l.Breaker.Min), 1, maxConcurrency)
	within("breaker.probes", float64(l.Breaker.Probes), 1, 1000)
	lasts("breaker.window", l.Breaker.Window, 100*time.Millisecond, task.MaxTimeout)
	lasts("breaker.open", l.Breaker.Open, 10*time.Millisecond, task.MaxTimeout)
	within("remembered", float64(l.Remembered), 1, maxConcurrency)
	lasts("window", l.Window, time.Second, 366*24*time.Hour)
	lasts("delay", max(l.Delay, 0), time.Millisecond, task.MaxTimeout)
	return errors.Join(errs...)
}

func sortedNames(m map[string]Share) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
