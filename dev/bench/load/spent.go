package load

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// spending is CPU time: that of this process, and that of the machine in ticks.
type spending struct {
	user, system time.Duration
	busy, all    float64
}

// meter takes what is spent. It has its files open from the beginning, since later
// there may be none left to open.
type meter struct{ machine, self *os.File }

func newMeter() (meter, error) {
	machine, err := os.Open("/proc/stat")
	if err != nil {
		return meter{}, fmt.Errorf("taking the machine's CPU time (Linux only): %w", err)
	}
	self, err := os.Open("/proc/self/status")
	if err != nil {
		return meter{}, errors.Join(fmt.Errorf("measuring memory (Linux only): %w", err), machine.Close())
	}
	return meter{machine, self}, nil
}

// read reads a file of the kernel's from its beginning.
func read(f *os.File) (string, error) {
	const most = 1 << 20
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	return string(text), nil
}

// spent is what was spent so far.
func (m meter) spent() (spending, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return spending{}, fmt.Errorf("taking CPU time: %w", err)
	}
	text, err := read(m.machine)
	if err != nil {
		return spending{}, err
	}
	s := spending{user: time.Duration(usage.Utime.Nano()), system: time.Duration(usage.Stime.Nano())}
	s.busy, s.all, err = machineTime(text)
	return s, err
}

// machineTime reads the first line of /proc/stat: what was busy, and all. Time
// that the host took away counts as busy: there is none of it left.
func machineTime(stat string) (busy, all float64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	const idle, wait, guest = 4, 5, 9 // guests are counted as users too
	if len(fields) < guest || fields[0] != "cpu" {
		return 0, 0, fmt.Errorf("reading /proc/stat: found %.64q", line)
	}
	for i, field := range fields[1:guest] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("reading /proc/stat: %w", err)
		}
		all += ticks
		if i+1 != idle && i+1 != wait {
			busy += ticks
		}
	}
	return busy, all, nil
}

// charge notes what a load cost.
func (r *Result) charge(before, after spending, took time.Duration) {
	system := after.system - before.system
	r.System = system.Seconds() / took.Seconds() / float64(runtime.NumCPU())
	if all := after.all - before.all; all > 0 {
		r.Busy = (after.busy - before.busy) / all
	}
	if r.Ended > 0 {
		r.Cost = float64((system + after.user - before.user).Microseconds()) / float64(r.Ended)
	}
}

// memory is the most that this process has held, in bytes.
func (m meter) memory() (int64, error) {
	text, err := read(m.self)
	if err != nil {
		return 0, err
	}
	return mostMemory(text)
}

func mostMemory(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			number, _, _ := strings.Cut(strings.TrimSpace(value), " ")
			kilobytes, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("measuring memory: %w", err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("measuring memory: the kernel does not say")
}
