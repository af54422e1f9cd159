package logs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// record is what head tells people, if it does.
func (c *cursor) record() (Record, bool) {
	if s := c.head.stream; s < Stdout || s > System {
		return Record{}, false
	}
	return Record{
		Time: time.Unix(0, c.head.time), Node: c.node, Attempt: c.attempt, Stream: c.head.stream, Data: c.head.data,
	}, true
}

// stopError is an error of the function that records are given to, which ends
// the reading at once and is returned as it is.
type stopError struct{ err error }

func (e stopError) Error() string { return e.err.Error() }

func unwrapStop(err error) error {
	if stop, ok := errors.AsType[stopError](err); ok {
		return stop.err
	}
	return err
}

// Replay calls fn for each record of a run that f selects, in the order of
// time, and returns at the end of what there is now. An error of fn ends it and
// is returned. A log that its worker could not end is read as far as it goes.
func (l *Logs) Replay(ctx context.Context, runKey string, f Filter, fn func(Record) error) error {
	parts, err := l.parts(ctx, runKey, f)
	if err != nil {
		return err
	}
	cursors := make([]*cursor, len(parts))
	for i, p := range parts {
		cursors[i] = &cursor{part: p, key: p.key(runKey)}
	}
	return unwrapStop(merge(ctx, l.store, cursors, fn, func() bool { return false }))
}

// lastRead bounds how much Last reads.
const lastRead = 1 << 20

// Last is the end of the log of the newest attempt of a node, at most size bytes
// of it and at most a MiB: what a person looks at first. There may be none.
func (l *Logs) Last(ctx context.Context, runKey, node string, size int) ([]Record, error) {
	size = min(max(size, 0), lastRead)
	parts, err := l.parts(ctx, runKey, Filter{Node: node})
	if err != nil {
		return nil, err
	}
	var newest *cursor
	for _, p := range parts {
		if p.node == node {
			newest = &cursor{part: p, key: p.key(runKey)}
		}
	}
	if newest == nil {
		return nil, nil
	}
	if err := l.seek(ctx, newest, size+maxFrame); err != nil {
		return nil, fmt.Errorf("reading the end of the log of %s: %w", node, err)
	}
	var records []Record
	err = merge(ctx, l.store, []*cursor{newest}, func(r Record) error {
		r.Data = append([]byte(nil), r.Data...)
		records = append(records, r)
		return nil
	}, func() bool { return false })
	return lastRecords(records, size), err
}

// seek moves a cursor to a frame about size bytes before the end of its part.
func (l *Logs) seek(ctx context.Context, c *cursor, size int) error {
	if ok, err := c.peek(ctx, l.store, openingSize); err != nil || !ok {
		return err
	}
	c.skip()
	start := c.size - int64(size)
	if start <= c.off {
		return nil
	}
	buf := make([]byte, 2*maxFrame)
	n, err := l.store.ReadAt(ctx, c.key, buf, start)
	if n == 0 {
		return err
	}
	// The seed makes sure that what matches its checksum is a frame.
	for i := range n {
		if _, err := parse(buf[i:n], c.seed); err == nil {
			c.off, c.buf = start+int64(i), nil
			return nil
		}
	}
	return nil // damaged: read from the start
}

// lastRecords keeps the end of records, size bytes of it.
func lastRecords(records []Record, size int) []Record {
	for i := len(records) - 1; i >= 0; i-- {
		r := &records[i]
		if len(r.Data) >= size {
			r.Data = r.Data[len(r.Data)-size:]
			if size == 0 {
				return records[i+1:]
			}
			return records[i:]
		}
		size -= len(r.Data)
	}
	return records
}
