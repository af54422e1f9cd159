package tree

import (
	"bytes"
	"errors"
	"os"
	"strconv"
)

// ErrStat says that a line of /proc/<pid>/stat was not understood.
var ErrStat = errors.New("unreadable process state")

// Stat is what /proc/<pid>/stat says of a process.
type Stat struct {
	PID, PPID, PGID, SID int
	// Comm is the short name of the program, at most 15 bytes.
	Comm string
	// State is the letter of the process's state: R, S, D, T, Z and so on.
	State byte
	// Start is when it started, in ticks since boot. A pid with its start
	// names one process for ever; the pid alone is used again.
	Start uint64
}

// Dead says whether the process has ended and only waits to be reaped. kill(2)
// still succeeds on it.
func (s Stat) Dead() bool {
	return s.State == 'Z' || s.State == 'X' || s.State == 'x'
}

// ReadStat reads the state of a process.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile(path(pid, "stat"))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(text)
}

// parseStat reads "pid (comm) state ppid pgrp session …"; comm may hold spaces
// and parentheses, so the last parenthesis counts.
func parseStat(text []byte) (Stat, error) {
	left, right := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if left < 2 || right < left {
		return Stat{}, ErrStat
	}
	const state, ppid, pgrp, session, start = 0, 1, 2, 3, 19
	fields := bytes.Fields(text[right+1:])
	if len(fields) <= start {
		return Stat{}, ErrStat
	}
	var numbers [5]uint64
	for i, field := range [][]byte{text[:left-1], fields[ppid], fields[pgrp], fields[session], fields[start]} {
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return Stat{}, ErrStat
		}
		numbers[i] = n
	}
	return Stat{
		PID: int(numbers[0]), PPID: int(numbers[1]), PGID: int(numbers[2]), SID: int(numbers[3]),
		Comm: string(text[left+1 : right]), State: fields[state][0], Start: numbers[4],
	}, nil
}

// path is the name of a process's file in /proc.
func path(pid int, file string) string {
	return "/proc/" + strconv.Itoa(pid) + "/" + file
}
