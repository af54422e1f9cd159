package logs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"belay.run/internal/store"
)

const (
	// retryEvery is how long a store that failed is left alone, with all
	// output dropped meanwhile.
	retryEvery = time.Second
	// maxParts bounds how often one attempt may be begun.
	maxParts = 1000
)

// flusher moves what a Writer has collected into the store. Only its goroutine
// touches the fields above mu.
type flusher struct {
	logs    *Logs
	w       *Writer
	part    part
	off     int64
	retryAt time.Time
	spare   []byte
	live    *live

	// quit asks for the last flush, done says that it is over, and stop gives
	// up on a store that does not answer.
	quit, done chan struct{}
	stop       context.CancelCauseFunc

	mu sync.Mutex
	// lost counts the bytes of output that the store did not take, unsaid
	// those that the log itself does not mention yet, under way those that
	// it is taking now.
	lost, unsaid, underWay int64
	// why is the first reason.
	why error
	// opened says that a part of the log was begun.
	opened bool
}

func newFlusher(l *Logs, w *Writer) *flusher {
	return &flusher{
		logs: l, w: w, part: part{node: w.step.Node, attempt: w.step.Attempt, number: 1},
		quit: make(chan struct{}), done: make(chan struct{}),
	}
}

// begin opens a part of the log that does not exist yet. Where the store refuses
// it, the next append tries again.
func (f *flusher) begin(ctx context.Context, at int64) error {
	head := appendOpening(nil, f.w.seed, at)
	for ; f.part.number <= maxParts; f.part.number++ {
		err := f.logs.store.Append(ctx, f.part.key(f.w.step.RunKey), 0, head)
		if err == nil {
			f.off = int64(len(head))
			f.live = newLive(f.logs, f.w.step.RunKey, f.part)
			f.live.offer(ctx, 0, head)
			f.mu.Lock()
			f.opened = true
			f.mu.Unlock()
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("attempt %d was begun %d times already", f.part.attempt, maxParts)
}

// start runs the flusher until wait. It outlives ctx.
func (f *flusher) start(ctx context.Context) {
	ctx, f.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go f.run(ctx)
}

func (f *flusher) run(ctx context.Context) {
	defer close(f.done)
	timer := time.NewTimer(flushEvery)
	defer timer.Stop()
	for {
		select {
		case <-f.w.some:
		case <-f.quit:
		}
		timer.Reset(flushEvery)
		select {
		case <-f.w.full:
		case <-timer.C:
		case <-f.quit:
		}
		select {
		case <-f.quit:
			f.write(ctx, true)
			return
		default:
			f.write(ctx, false)
		}
	}
}

// write moves what is pending to the store. What the store does not take is
// counted as lost.
func (f *flusher) write(ctx context.Context, last bool) {
	frames, output := f.w.take(f.spare)
	f.spare = frames
	if len(frames) == 0 && !last {
		return
	}
	f.mu.Lock()
	f.underWay = output
	unsaid, why := f.unsaid, f.why
	f.mu.Unlock()

	var err error
	if last || time.Now().After(f.retryAt) {
		batch := f.complete(frames, unsaid, why, last)
		if err = f.append(ctx, batch); err == nil {
			f.live.offer(ctx, f.off-int64(len(batch)), batch)
		}
	} else {
		err = why
	}
	if last && f.live != nil {
		f.live.end(ctx)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.underWay = 0
	if err != nil {
		f.retryAt = time.Now().Add(retryEvery)
		f.loseLocked(output, err)
	} else {
		f.unsaid -= unsaid
	}
	// A burst leaves large buffers behind; a quiet step gives them back.
	if cap(frames) > 4*len(frames)+4*chunkSize {
		f.spare = nil
	}
}

// complete puts around frames what is said once: that output was lost before
// them, and that the log ends after them.
func (f *flusher) complete(frames []byte, unsaid int64, why error, last bool) []byte {
	if unsaid > 0 {
		note := fmt.Sprintf("%s of output lost here: %v\n", byteCount(unsaid), why)
		frames = append(appendFrame(nil, f.w.seed, System, f.startOf(frames), note), frames...)
	}
	if last {
		frames = appendFrame(frames, f.w.seed, closing, f.w.now(), "")
	}
	return frames
}

// startOf is a time for a frame that goes before frames.
func (f *flusher) startOf(frames []byte) int64 {
	if first, err := parse(frames, f.w.seed); err == nil {
		return first.time
	}
	return f.w.now()
}

// append adds frames to the log. Where the log is not what it was, since
// somebody removed it or writes to it, it goes on in another part.
func (f *flusher) append(ctx context.Context, frames []byte) error {
	if f.live == nil {
		if err := f.begin(ctx, f.startOf(frames)); err != nil {
			return err
		}
	}
	err := f.logs.store.Append(ctx, f.part.key(f.w.step.RunKey), f.off, frames)
	if errors.Is(err, store.ErrConflict) {
		f.part.number++
		if err = f.begin(ctx, f.startOf(frames)); err == nil {
			err = f.logs.store.Append(ctx, f.part.key(f.w.step.RunKey), f.off, frames)
		}
	}
	if err == nil {
		f.off += int64(len(frames))
	}
	return err
}

// lose counts n bytes of output that will not be in the log.
func (f *flusher) lose(n int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loseLocked(n, err)
}

func (f *flusher) loseLocked(n int64, err error) {
	f.lost += n
	f.unsaid += n
	if f.why == nil {
		f.why = err
	}
}

// wait waits for the last flush, as long as ctx lasts, and returns how much was
// lost and why.
func (f *flusher) wait(ctx context.Context) (lost int64, err error) {
	select {
	case <-f.done:
		f.mu.Lock()
		defer f.mu.Unlock()
		lost, err = f.lost, f.why
	case <-ctx.Done():
		f.stop(context.Cause(ctx))
		f.w.mu.Lock()
		pending := f.w.output
		f.w.mu.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
		lost, err = f.lost+f.underWay+pending, fmt.Errorf("the store did not answer in time: %w", context.Cause(ctx))
	}
	switch node := f.w.step.Node; {
	case err == nil:
	case !f.opened:
		err = fmt.Errorf("the log of %s could not be opened, %s of output lost: %w", node, byteCount(lost), err)
	default:
		err = fmt.Errorf("log of %s: %s of output lost: %w", node, byteCount(lost), err)
	}
	return lost, err
}
