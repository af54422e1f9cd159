//go:build unix

package executor

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

// roomForFiles is how many tasks may run at once, each with a connection, by the
// files that this process may open. The runtime of Go has raised that limit as far
// as it may be raised when the process began.
func roomForFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32 // it does not say: the system's own errors have to do
	}
	most := int(min(limit.Cur, math.MaxInt32))
	return max(1, most-most/part-reserve-openFiles())
}

// openFiles is how many files are open, where the system tells.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
