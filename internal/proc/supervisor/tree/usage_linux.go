package tree

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Usage is what a process uses.
type Usage struct {
	// CPU is its own user and system time, Waited that of the descendants that
	// were waited for.
	CPU, Waited time.Duration
	Threads     int
	// Resident is its memory in bytes, what it shares with others counted whole.
	Resident int64
}

// tick is the unit of times in /proc; Linux shows them in hundredths of a second
// on every architecture that Go knows.
const tick = 10 * time.Millisecond

// ReadUsage reads what a process uses.
func ReadUsage(pid int) (Usage, error) {
	text, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(text)
}

// parseUsage reads the same line as parseStat.
func parseUsage(text []byte) (Usage, error) {
	const user, system, waitedUser, waitedSystem, threads, resident = 11, 12, 13, 14, 17, 21
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= resident {
		return Usage{}, ErrStat
	}
	var numbers [6]int64
	for i, at := range []int{user, system, waitedUser, waitedSystem, threads, resident} {
		n, err := strconv.ParseInt(string(fields[at]), 10, 64)
		if err != nil {
			return Usage{}, ErrStat
		}
		numbers[i] = n
	}
	return Usage{
		CPU:     time.Duration(numbers[0]+numbers[1]) * tick,
		Waited:  time.Duration(numbers[2]+numbers[3]) * tick,
		Threads: int(numbers[4]), Resident: numbers[5] * int64(os.Getpagesize()),
	}, nil
}

// Proportional is the memory of a process in bytes, each page that it shares
// divided by those who do. It costs more than Usage.Resident.
func Proportional(pid int) (int64, error) {
	text, err := os.ReadFile(path(pid, "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(value), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, ErrStat
			}
			return kib << 10, nil
		}
	}
	return 0, ErrStat
}
