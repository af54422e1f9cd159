//go:build unix

package nofile

import (
	"math"
	"os"
	"syscall"
)

const (
	// reserve is how many files are kept for what else the process does, and
	// part the part of those it may have that is kept beside.
	reserve, part = 64, 8
)

// Room is how many connections this process may have open at once beside what it
// has open now, by the files that it may open. The runtime of Go has raised that
// limit as far as it may be raised when the process began.
func Room() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32 // it does not say: the system's own errors have to do
	}
	most := int(min(limit.Cur, math.MaxInt32))
	return max(1, most-most/part-reserve-open())
}

// open is how many files are open, where the system tells.
func open() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
