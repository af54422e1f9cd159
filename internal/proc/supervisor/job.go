package supervisor

import (
	"errors"
	"io"
	"time"
)

// MaxJob bounds an encoded job. The kernel's own bound on arguments and
// environment is 6 MiB at most.
const MaxJob = 16 << 20

// ErrJob says that what came over the control pipe is no job.
var ErrJob = errors.New("malformed job")

// Job is what a supervisor is to run.
type Job struct {
	// Path is the program; Argv its arguments, the first being its name.
	Path string
	Argv []string
	Dir  string
	Env  []string
	// Cgroup is the directory of the step's cgroup; empty where none can be made.
	Cgroup string
	// Record is a file that is removed when the tree is proved gone.
	Record string
	// HoldOut and HoldErr say that the step's stdout and stderr are pipes which
	// the worker reads. The supervisor reads them when the worker is dead, so
	// that a step which says something while it ends does not die of it.
	HoldOut, HoldErr bool
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// KillBound is how long SIGKILL is tried before the supervisor reports that
	// it could not end the tree.
	KillBound time.Duration
	// DeadMan is how long the supervisor bears no sign of life of the worker;
	// 0 is for ever.
	DeadMan time.Duration
}

// Encode writes the job as its length and its fields, each with its length:
// arguments and variables are bytes, not always UTF-8.
func (j Job) Encode() ([]byte, error) {
	b := make([]byte, 4, 4096)
	for _, s := range []string{j.Path, j.Dir, j.Cgroup, j.Record} {
		b = appendString(b, s)
	}
	for _, list := range [][]string{j.Argv, j.Env} {
		b = appendNumber(b, len(list))
		for _, s := range list {
			b = appendString(b, s)
		}
	}
	for _, hold := range []bool{j.HoldOut, j.HoldErr} {
		b = appendNumber(b, int(flag(hold)))
	}
	for _, d := range []time.Duration{j.Grace, j.KillBound, j.DeadMan} {
		b = appendNumber(b, int((d+time.Millisecond-1)/time.Millisecond)) // 0 has a meaning
	}
	if len(b) > MaxJob {
		return nil, ErrJob
	}
	copy(b, appendNumber(nil, len(b)-4))
	return b, nil
}

// ReadJob reads what Encode wrote.
func ReadJob(r io.Reader) (Job, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Job{}, err
	}
	d := decoder{rest: head[:]}
	size := d.number()
	if size > MaxJob {
		return Job{}, ErrJob
	}
	d.rest = make([]byte, size)
	if _, err := io.ReadFull(r, d.rest); err != nil {
		return Job{}, err
	}
	j := Job{Path: d.string(), Dir: d.string(), Cgroup: d.string(), Record: d.string()}
	j.Argv, j.Env = d.list(), d.list()
	j.HoldOut, j.HoldErr = d.number() == 1, d.number() == 1
	j.Grace, j.KillBound, j.DeadMan = d.duration(), d.duration(), d.duration()
	if d.bad || len(d.rest) > 0 {
		return Job{}, ErrJob
	}
	return j, nil
}

func appendNumber(b []byte, n int) []byte {
	n = min(max(n, 0), 1<<31-1)
	return append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func appendString(b []byte, s string) []byte {
	return append(appendNumber(b, len(s)), s...)
}

// decoder takes fields off the front of a job and remembers if one was bad.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.bad, d.rest = true, nil
		return nil
	}
	field := d.rest[:n]
	d.rest = d.rest[n:]
	return field
}

func (d *decoder) number() int {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
}

func (d *decoder) string() string { return string(d.take(d.number())) }

func (d *decoder) duration() time.Duration {
	return time.Duration(d.number()) * time.Millisecond
}

func (d *decoder) list() []string {
	n := d.number()
	if n > len(d.rest)/4 { // each has at least its length
		d.bad = true
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}
