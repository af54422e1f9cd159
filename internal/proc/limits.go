package proc

import (
	"fmt"
	"time"
)

// Limits bound what a job may use; 0 is no bound. A job that goes over one is
// not ended for that: [Job.OnExcess] is told, and [Result.Excess] says so. Where
// the kernel keeps a limit, by a controller of the job's cgroup, it ends a job
// that goes over its memory by itself; elsewhere what the job uses is looked at
// several times a second, and what comes and goes in between is not seen.
type Limits struct {
	// Memory is in bytes: of all processes together, what they share counted
	// once.
	Memory int64
	// PIDs counts processes and threads, as the kernel's own limit does.
	PIDs int
	// CPU is user and system time of all processes.
	CPU time.Duration
}

// Limited is what a limit is of.
type Limited string

// What limits are of.
const (
	LimitedMemory Limited = "memory"
	LimitedPIDs   Limited = "pids"
	LimitedCPU    Limited = "cpu_time"
)

// Excess is a limit that a job went over, and what it came to: bytes, a number,
// or nanoseconds.
type Excess struct {
	Of          Limited
	Limit, Used int64
}

// String says it in words, with both numbers.
func (e Excess) String() string {
	switch e.Of {
	case LimitedMemory:
		return fmt.Sprintf("its processes held %s of memory; the limit is %s", Bytes(e.Used), Bytes(e.Limit))
	case LimitedCPU:
		return fmt.Sprintf("its processes computed for %s; the limit is %s",
			time.Duration(e.Used).Round(time.Millisecond), time.Duration(e.Limit))
	case LimitedPIDs:
	}
	return fmt.Sprintf("it had %d processes and threads; the limit is %d", e.Used, e.Limit)
}

// Bytes is a number of bytes as a pipeline file has it: 64MiB, 1.5GiB.
func Bytes(n int64) string {
	const step = 1024
	value, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < step {
			break
		}
		value, unit = value/step, next
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%d%s", int64(value), unit)
	}
	return fmt.Sprintf("%.1f%s", value, unit)
}

// uses is what a job uses at one moment.
type uses struct {
	memory int64
	pids   int
	cpu    time.Duration
}

// over is the first limit that is passed, if one is.
func (l Limits) over(u uses) *Excess {
	switch {
	case l.Memory > 0 && u.memory > l.Memory:
		return &Excess{LimitedMemory, l.Memory, u.memory}
	case l.PIDs > 0 && u.pids > l.PIDs:
		return &Excess{LimitedPIDs, int64(l.PIDs), int64(u.pids)}
	case l.CPU > 0 && u.cpu > l.CPU:
		return &Excess{LimitedCPU, int64(l.CPU), int64(u.cpu)}
	}
	return nil
}

// copiedMemory is what a process may seem to have held that is not its own: it
// begins as a copy of the process that starts it.
const copiedMemory = 64 << 20

// after is a limit that turns out to have been passed when a job has ended.
func (l Limits) after(r Result) *Excess {
	u := uses{cpu: r.CPU}
	if r.MaxRSS > copiedMemory {
		u.memory = r.MaxRSS
	}
	return l.over(u)
}
