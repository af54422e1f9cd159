package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Options says how a log is written.
type Options struct {
	// Limit is how many bytes of output are kept. Defaults to 1 GiB.
	Limit int64
	// Stall is how long output waits for a store that takes nothing, before it
	// is dropped. Defaults to 30 seconds.
	Stall time.Duration
}

// Defaults of Options.
const (
	LimitDefault = 1 << 30
	StallDefault = 30 * time.Second
)

// Summary says what became of the output of a step.
type Summary struct {
	// Bytes were printed. Dropped of them are not in the log: they were over
	// the limit, or the store did not take them.
	Bytes   int64
	Dropped int64
}

// ErrClosed is what writing to a closed log fails with.
var ErrClosed = errors.New("the log is closed")

const (
	// chunkSize is how much is collected before it is written at once, and
	// flushEvery how long the first of it waits for that.
	chunkSize  = maxFrame
	flushEvery = 200 * time.Millisecond
	// maxPending is how much waits for the store before the step has to.
	maxPending = 512 << 10
	// together is how close in time writes are that share a frame.
	together = 5 * time.Millisecond
)

// Writer writes the log of one attempt. It is safe for concurrent use.
type Writer struct {
	step  Step
	limit int64
	stall time.Duration
	seed  uint32
	flush *flusher

	mu      sync.Mutex
	pending []byte
	// open is where in pending the frame starts that may still grow, or -1.
	open int
	// output is how much of pending is the step's own.
	output int64
	// lastAt is the time of the newest frame.
	lastAt int64
	// drained is closed when the flusher takes pending.
	drained chan struct{}
	// stalled says that the store takes nothing and output is dropped.
	stalled bool
	closed  bool
	bytes   int64
	over    int64
	tail    tail

	// some and full tell the flusher that there is something, and a chunk.
	some, full chan struct{}
}

// Open begins the log of an attempt. The writer goes on after ctx is done, until
// Close, since what a step prints while it is being cancelled counts most. An
// attempt that has a log already gets another part, which is read after it.
//
// A store that refuses the log, or does not answer within Stall, is no error: no
// step is kept from running by its log. The writer tries again with each flush,
// and counts as lost what the store has not taken.
func (l *Logs) Open(ctx context.Context, step Step, o Options) (*Writer, error) {
	if err := step.check(); err != nil {
		return nil, err
	}
	w := &Writer{
		step: step, limit: o.Limit, stall: o.Stall, seed: newSeed(),
		open: -1, lastAt: time.Now().UnixNano(), drained: make(chan struct{}),
		some: make(chan struct{}, 1), full: make(chan struct{}, 1),
	}
	if w.limit <= 0 {
		w.limit = LimitDefault
	}
	if w.stall <= 0 {
		w.stall = StallDefault
	}
	w.flush = newFlusher(l, w)
	opening, cancel := context.WithTimeoutCause(ctx, w.stall, fmt.Errorf("the store did not answer for %s", w.stall))
	defer cancel()
	if err := w.flush.begin(opening, w.lastAt); err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", step.Node, err)
	}
	w.flush.start(ctx)
	return w, nil
}

// Stdout takes the step's standard output. Like Stderr, it never fails before
// Close, so that no step is ended by its log: what cannot be kept is counted.
func (w *Writer) Stdout() io.Writer { return output{w, Stdout} }

// Stderr takes the step's standard error.
func (w *Writer) Stderr() io.Writer { return output{w, Stderr} }

type output struct {
	w      *Writer
	stream Stream
}

func (o output) Write(p []byte) (int, error) {
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, ErrClosed
	}
	before := w.bytes - w.over
	w.bytes += int64(len(p))
	w.tail.add(p)
	keep := p[:min(int64(len(p)), w.limit-before)]
	if over := int64(len(p) - len(keep)); over > 0 {
		first := w.over == 0
		w.over += over
		defer func() {
			if first {
				w.say("output limit of " + byteCount(w.limit) + " reached: what follows is dropped")
			}
		}()
	}
	for len(keep) > 0 {
		if err := w.waitForRoom(); err != nil {
			w.flush.lose(int64(len(keep)), err)
			break
		}
		n := w.add(o.stream, keep)
		w.output += int64(n)
		keep = keep[n:]
	}
	return len(p), nil
}

// waitForRoom waits until pending takes another frame. It gives up when the
// store takes nothing for too long, and then without a wait until it does. The
// lock is held before and after.
func (w *Writer) waitForRoom() error {
	var timeout <-chan time.Time
	for len(w.pending) >= maxPending && !w.stalled && !w.closed {
		if timeout == nil {
			timer := time.NewTimer(w.stall)
			defer timer.Stop()
			timeout = timer.C
		}
		drained := w.drained
		w.mu.Unlock()
		late := false
		select {
		case <-drained:
		case <-timeout:
			late = true
		}
		w.mu.Lock()
		w.stalled = w.stalled || late && drained == w.drained
	}
	switch {
	case w.closed:
		return ErrClosed
	case len(w.pending) >= maxPending:
		return fmt.Errorf("the store took nothing for %s", w.stall)
	}
	return nil
}

// add puts as much of data as fits one frame into pending, and returns how much
// that is. The lock is held.
func (w *Writer) add(stream Stream, data []byte) int {
	now := max(time.Now().UnixNano(), w.lastAt)
	if w.open >= 0 {
		f := w.pending[w.open:]
		if Stream(f[14]) != stream || len(f) >= maxFrame || now-w.lastAt > int64(together) {
			w.sealOpen()
		}
	}
	if w.open < 0 {
		w.open = len(w.pending)
		w.lastAt = now
		w.pending = appendHeader(w.pending, stream, now)
	}
	n := min(len(data), maxFrame-(len(w.pending)-w.open))
	w.pending = append(w.pending, data[:n]...)
	signal(w.some)
	if len(w.pending) >= chunkSize {
		signal(w.full)
	}
	return n
}

func (w *Writer) sealOpen() {
	if w.open >= 0 {
		seal(w.pending[w.open:], w.seed)
		w.open = -1
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// System adds a line of Belay's own. It is kept also past the limit.
func (w *Writer) System(msg string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if err := w.waitForRoom(); err != nil {
		w.flush.lose(0, err)
		return
	}
	w.say(msg)
}

// say adds a line of Belay's own, at once. The lock is held.
func (w *Writer) say(msg string) {
	line := []byte(strings.TrimSuffix(msg, "\n") + "\n")
	for len(line) > 0 {
		line = line[w.add(System, line):]
	}
}

// Tail is the end of the output, for error messages: at most 20 lines and 4 KiB
// of valid UTF-8.
func (w *Writer) Tail() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tail.text()
}

// now is a time for a frame: never less than that of one before.
func (w *Writer) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastAt = max(time.Now().UnixNano(), w.lastAt)
	return w.lastAt
}

// take hands pending to the flusher: whole frames, and how much of them is
// output.
func (w *Writer) take(spare []byte) (frames []byte, output int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealOpen()
	frames, output = w.pending, w.output
	w.pending, w.output, w.stalled = spare[:0], 0, false
	close(w.drained)
	w.drained = make(chan struct{})
	return frames, output
}

// Close writes what is pending and ends the log. It waits for the store no
// longer than ctx lasts. Its error says why something is not in the log, if the
// store is to blame. It is safe to call twice.
func (w *Writer) Close(ctx context.Context) (Summary, error) {
	w.mu.Lock()
	if !w.closed {
		if w.over > 0 {
			w.say(byteCount(w.over) + " of output dropped: they are over the limit of " + byteCount(w.limit))
		}
		w.closed = true
		close(w.flush.quit)
	}
	w.mu.Unlock()
	lost, err := w.flush.wait(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	return Summary{Bytes: w.bytes, Dropped: w.over + lost}, err
}

// byteCount is n in words, exactly.
func byteCount(n int64) string {
	text := fmt.Sprintf("%d bytes", n)
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size := int64(1) << (10 * (i + 1)); n > 0 && n%size == 0 {
			text = fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	return text
}
