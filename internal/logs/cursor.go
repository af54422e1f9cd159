package logs

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"io"

	"belay.run/internal/store"
)

const (
	// mergeMemory is about what the buffers of all cursors take together, and
	// smallRead and largeRead what one reads at a time within that.
	mergeMemory = 16 << 20
	smallRead   = 4 << 10
	largeRead   = 128 << 10
)

// cursor reads one part of a log, frame by frame. It holds no file open.
type cursor struct {
	part
	key string
	// off is where buf starts in the object.
	off int64
	buf []byte
	// head is the frame at the start of buf, if there is one.
	head  frame
	seed  uint32
	begun bool
	ended bool
	// level says that buf ends where the log does, as far as is known, so that
	// there is no need to ask the store.
	level bool
}

// peek finds the next frame and reports whether there is one yet. It reads
// about size bytes at a time from st.
func (c *cursor) peek(ctx context.Context, st store.Store, size int) (bool, error) {
	for !c.ended {
		err := c.parse()
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, errDamaged):
			// It may have been read while it was being written.
			c.buf, c.level = nil, false
			return false, nil
		case c.level:
			if len(c.buf) == 0 {
				c.buf = nil
			}
			return false, nil
		}
		if err := c.fill(ctx, st, size); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (c *cursor) parse() (err error) {
	if c.begun {
		c.head, err = parse(c.buf, c.seed)
		return err
	}
	c.head, c.seed, err = parseOpening(c.buf)
	return err
}

// fill reads more from the store. A log that is gone has ended there.
func (c *cursor) fill(ctx context.Context, st store.Store, size int) error {
	if !c.begun {
		size = openingSize
	}
	if len(c.buf) >= headerSize {
		size = max(size, frameSize(c.buf)-len(c.buf))
	}
	buf := c.buf
	if cap(buf)-len(buf) < size {
		buf = append(make([]byte, 0, len(c.buf)+size), c.buf...)
	}
	n, err := st.ReadAt(ctx, c.key, buf[len(buf):len(buf)+size], c.off+int64(len(buf)))
	c.buf = buf[:len(buf)+n]
	c.level = errors.Is(err, io.EOF) || errors.Is(err, store.ErrNotFound)
	if c.level {
		return nil
	}
	return err
}

// feed adds frames of the log that came another way than from the store, which
// has what may be missing in between.
func (c *cursor) feed(k chunk) {
	switch n := c.off + int64(len(c.buf)) - k.off; {
	case n < 0:
		c.level = false
	case n < int64(len(k.frames)):
		c.buf = append(c.buf, k.frames[n:]...)
	}
}

// skip goes on to the frame after head.
func (c *cursor) skip() {
	switch c.head.stream {
	case opening:
		c.begun = true
	case closing:
		c.ended = true
	case Stdout, Stderr, System:
	}
	n := c.head.size()
	c.off += int64(n)
	c.buf = c.buf[n:]
	c.head = frame{}
}

// heads orders cursors by the time of their next frame.
type heads []*cursor

func (h heads) Len() int { return len(h) }

func (h heads) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.head.time, b.head.time), cmp.Compare(a.node, b.node),
		cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.number, b.number)) < 0
}

func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *heads) Push(x any) { *h = append(*h, x.(*cursor)) } //nolint:errcheck // only cursors are pushed

func (h *heads) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}

// merge calls fn for each record that cursors find, in the order of time, until
// there are no more now, or more than enough says that it is. Buffers share a
// bounded memory, so that thousands of logs can be merged.
func merge(ctx context.Context, st store.Store, cursors []*cursor, fn func(Record) error, enough func() bool) error {
	h := make(heads, 0, len(cursors))
	for _, c := range cursors {
		ok, err := c.peek(ctx, st, smallRead)
		if err != nil {
			return err
		}
		if ok {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	for len(h) > 0 && !enough() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c := h[0]
		if r, ok := c.record(); ok {
			if err := fn(r); err != nil {
				return stopError{err}
			}
		}
		c.skip()
		ok, err := c.peek(ctx, st, min(max(mergeMemory/len(h), smallRead), largeRead))
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}
