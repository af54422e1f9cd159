package cli

import (
	"bytes"
	"time"

	"belay.run/internal/logs"
)

// How long, and how much of, a log waits for the line that says that its step
// has begun: logs come faster than states.
const (
	heldFor  = 1500 * time.Millisecond
	heldMost = 256 << 10
)

// heldLogs are records that wait, in order.
type heldLogs struct {
	records []logs.Record
	bytes   int
	since   time.Time
}

func (h *heldLogs) empty() bool { return len(h.records) == 0 }

// add keeps a copy of a record.
func (h *heldLogs) add(r logs.Record) {
	if h.empty() {
		h.since = time.Now()
	}
	r.Data = bytes.Clone(r.Data)
	h.records = append(h.records, r)
	h.bytes += len(r.Data)
}

// due reports whether the records need wait no longer: all of their nodes are
// shown, or they have waited long enough, or there are too many.
func (h *heldLogs) due(shown func(node string) bool) bool {
	if h.bytes > heldMost || time.Since(h.since) > heldFor {
		return true
	}
	for _, r := range h.records {
		if !shown(r.Node) {
			return false
		}
	}
	return true
}

// drain gives the records away. An error leaves none behind either.
func (h *heldLogs) drain(write func(logs.Record) error) error {
	records := h.records
	h.records, h.bytes = nil, 0
	for _, r := range records {
		if err := write(r); err != nil {
			return err
		}
	}
	return nil
}
