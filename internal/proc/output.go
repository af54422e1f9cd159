package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// outputChunk is what is read of a step's output at once.
	outputChunk = 32 << 10
	// pipeMax is what is read at most from a pipe that somebody keeps open:
	// the most that it can hold, unless root made it larger.
	pipeMax = 1 << 20
	// writerBound is how long a writer may keep a step whose processes are
	// gone from ending.
	writerBound = 30 * time.Second
)

// plumbing carries what a step writes to the writers of its job.
type plumbing struct {
	ends    [2]*os.File // what the step gets as stdout and stderr; nil is nowhere
	pipe    [2]bool     // whether that is a pipe that the worker reads
	made    []*os.File  // the writing ends of these pipes
	outputs []*output
}

// plumb makes the pipes of a job. A file is handed to the step as it is.
func plumb(stdout, stderr io.Writer) (*plumbing, error) {
	p := &plumbing{}
	for i, w := range []io.Writer{stdout, stderr} {
		switch w := w.(type) {
		case nil:
		case *os.File:
			p.ends[i] = w
		default:
			if i == 1 && sameWriter(stdout, stderr) {
				p.ends[1], p.pipe[1] = p.ends[0], p.pipe[0]
				continue
			}
			read, write, err := os.Pipe()
			if err != nil {
				p.closeEnds()
				p.discard()
				return nil, startError(ErrNoResources, err, "the host has no pipe for output: %v", err)
			}
			p.ends[i], p.pipe[i], p.made = write, true, append(p.made, write)
			p.outputs = append(p.outputs, &output{pipe: read, to: w, done: make(chan struct{})})
		}
	}
	return p, nil
}

// sameWriter says whether two writers are one. Comparing writers of a type
// that cannot be compared panics: those are not one.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }() // what it says is that they differ
	return a == b
}

// closeEnds closes the step's side of the pipes on the worker's side.
func (p *plumbing) closeEnds() {
	for _, f := range p.made {
		_ = f.Close() // the write end of a pipe
	}
}

// discard closes the pipes of a step that did not start.
func (p *plumbing) discard() {
	for _, o := range p.outputs {
		_ = o.pipe.Close() // nothing was written
	}
}

// carry begins to read.
func (p *plumbing) carry() {
	for _, o := range p.outputs {
		go o.carry()
	}
}

// drain waits until all that the step wrote has reached its writers. It is
// called when the step is gone: who still holds a pipe open for longer than the
// delay is not waited for, nor is a writer that does not take what it is given.
func (p *plumbing) drain(delay, bound time.Duration) error {
	timeout := time.NewTimer(delay)
	defer timeout.Stop()
	for _, o := range p.outputs {
		select {
		case <-o.done:
		case <-timeout.C:
			p.cut()
			timeout.Reset(bound)
			select {
			case <-o.done:
			case <-timeout.C:
				return fmt.Errorf("%w: its writer took nothing for %v", ErrOutput, bound)
			}
		}
	}
	var errs []error
	for _, o := range p.outputs {
		errs = append(errs, o.lostError())
	}
	return errors.Join(errs...)
}

// cut lets every reader take what its pipe holds and stop.
func (p *plumbing) cut() {
	for _, o := range p.outputs {
		_ = o.pipe.SetReadDeadline(time.Unix(1, 0)) // fails on a pipe that is already closed
	}
}

// output is one pipe and its writer.
type output struct {
	pipe *os.File
	to   io.Writer
	done chan struct{} // closed when all has been read; then lost and err may be read

	lost int64
	err  error
}

func (o *output) carry() {
	defer close(o.done)
	defer func() { _ = o.pipe.Close() }() // opened to read
	buf := make([]byte, outputChunk)
	for {
		n, err := o.pipe.Read(buf)
		o.write(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.takeRest(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

// takeRest reads what lies in the pipe without waiting for more.
func (o *output) takeRest(buf []byte) {
	conn, err := o.pipe.SyscallConn()
	if err == nil {
		err = o.pipe.SetReadDeadline(time.Time{})
	}
	for taken := 0; err == nil && taken < pipeMax; {
		var n int
		var readErr error
		err = conn.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), buf)
			return true
		})
		if errors.Is(readErr, syscall.EINTR) {
			continue
		}
		if err != nil || readErr != nil || n <= 0 {
			return
		}
		o.write(buf[:n])
		taken += n
	}
}

// write hands output on. After the first error the rest is counted and thrown
// away, so that the step does not block or die on a full log.
func (o *output) write(p []byte) {
	if o.err != nil || len(p) == 0 {
		o.lost += int64(len(p))
		return
	}
	n, err := o.to.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		o.err = err
		o.lost += int64(len(p) - min(max(n, 0), len(p)))
	}
}

func (o *output) lostError() error {
	if o.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %d bytes: %w", ErrOutput, o.lost, o.err)
}
