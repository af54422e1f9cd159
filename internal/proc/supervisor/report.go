package supervisor

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ErrReport says that a supervisor wrote something that is no report.
var ErrReport = errors.New("malformed report")

// Stage is how far a supervisor has come; the worker reads one report a stage.
type Stage byte

// The stages, in their order. Failed and Ended are the last words on a step.
const (
	// Waiting: there is no step.
	Waiting Stage = 'w'
	// Started: the step runs; Value is its pid.
	Started Stage = 's'
	// Failed: the step could not be started; Value is the error's number.
	Failed Stage = 'f'
	// Killing: what is left of the step is sent SIGKILL from now on.
	Killing Stage = 'k'
	// Ended: the step is over; Outcome says how, and Value whether the
	// supervisor is free for another.
	Ended Stage = 'e'
)

// Free is the value of the last report of a supervisor that waits for another
// job.
const Free = 1

// Report is one line that a supervisor writes to the worker.
type Report struct {
	Stage   Stage
	Value   int
	Outcome Outcome
}

// Outcome is how a step ended.
type Outcome struct {
	// Code is the exit code of the main process, Signal what killed it.
	Code, Signal int
	// User and System are the CPU time of the tree.
	User, System time.Duration
	// MaxRSS is the peak memory in bytes.
	MaxRSS int64
	// Leftover counts the processes that lived on after the main process, or
	// after the grace period, and were killed.
	Leftover int
	// Terminated: the tree was ended before the main process had ended itself.
	Terminated bool
	// DeadMan: the dead-man timer ended it.
	DeadMan bool
	// Survivors counts what could not be ended; 0 means that all are gone.
	Survivors int
}

// Encode is the report as a line.
func (r Report) Encode() []byte {
	b := append([]byte{byte(r.Stage)}, ' ')
	b = strconv.AppendInt(b, int64(r.Value), 10)
	o := r.Outcome
	for _, n := range []int64{
		int64(o.Code), int64(o.Signal), o.User.Microseconds(), o.System.Microseconds(), o.MaxRSS,
		int64(o.Leftover), flag(o.Terminated), flag(o.DeadMan), int64(o.Survivors),
	} {
		b = append(b, ' ')
		b = strconv.AppendInt(b, n, 10)
	}
	return append(b, '\n')
}

// ParseReport reads a line of Encode, without its end.
func ParseReport(line string) (Report, error) {
	fields := strings.Fields(line)
	if len(fields) != 11 || len(fields[0]) != 1 {
		return Report{}, ErrReport
	}
	var n [10]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(fields[i+1], 10, 64); err != nil {
			return Report{}, ErrReport
		}
	}
	return Report{Stage: Stage(fields[0][0]), Value: int(n[0]), Outcome: Outcome{
		Code: int(n[1]), Signal: int(n[2]),
		User: time.Duration(n[3]) * time.Microsecond, System: time.Duration(n[4]) * time.Microsecond,
		MaxRSS: n[5], Leftover: int(n[6]), Terminated: n[7] == 1, DeadMan: n[8] == 1, Survivors: int(n[9]),
	}}, nil
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
