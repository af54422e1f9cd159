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

// spending is CPU time: that of this process, of others, and of the machine in
// ticks.
type spending struct {
	user, system, others time.Duration
	busy, all            float64
}

// meter takes what is spent. It has its files open from the beginning, since later
// there may be none left to open.
type meter struct {
	machine, self *os.File
	others        []*os.File
}

func newMeter(others []int) (meter, error) {
	var m meter
	var errs [2]error
	m.machine, errs[0] = os.Open("/proc/stat")
	m.self, errs[1] = os.Open("/proc/self/status")
	err := errors.Join(errs[:]...)
	for _, pid := range others {
		f, e := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
		m.others, err = append(m.others, f), errors.Join(err, e)
	}
	if err != nil {
		return meter{}, fmt.Errorf("measuring CPU time and memory (Linux only): %w", err)
	}
	return m, nil
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
	for _, other := range m.others {
		stat, err := read(other)
		if err != nil {
			return spending{}, err
		}
		took, err := processTime(stat)
		if err != nil {
			return spending{}, fmt.Errorf("%s: %w", other.Name(), err)
		}
		s.others += took
	}
	s.busy, s.all, err = machineTime(text)
	return s, err
}

// processTime reads the CPU time of a process, which the kernel counts in hundredths
// of a second.
func processTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name before it may have blanks
	const user, system, tick = 11, 12, 10 * time.Millisecond
	if len(fields) <= system {
		return 0, fmt.Errorf("reading CPU time: found %.64q", stat)
	}
	var took time.Duration
	for _, field := range fields[user : system+1] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading CPU time: %w", err)
		}
		took += time.Duration(ticks) * tick
	}
	return took, nil
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
		r.Others = float64((after.others - before.others).Microseconds()) / float64(r.Ended)
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
