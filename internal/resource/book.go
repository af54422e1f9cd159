package resource

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/run"
)

// ledgerRest is how long the ledger is left alone after it did not answer in its
// time: whoever gives back many things would wait that long for each.
const ledgerRest = 2 * time.Second

// Book is where the entries of a host's attempts are written: its own records,
// which must be, and the ledger, which is as far as it can be reached.
type Book struct {
	Records *Records
	Ledger  *Ledger
	Log     *zap.Logger

	// silentUntil is until when the ledger is left alone, in ns.
	silentUntil atomic.Int64
}

// Note writes an entry in a new state. An error means that it is written nowhere:
// what it is about must not be acquired.
func (b *Book) Note(ctx context.Context, e *Entry, state run.ResourceState) error {
	e.State, e.Since = state, time.Now().UTC()
	if e.Acquired.IsZero() {
		e.Acquired = e.Since
	}
	b.noteInLedger(ctx, e)
	if b.Records == nil {
		return nil
	}
	return b.Records.Note(e)
}

func (b *Book) noteInLedger(ctx context.Context, e *Entry) {
	began := time.Now()
	if began.UnixNano() < b.silentUntil.Load() {
		return
	}
	err := b.Ledger.Note(ctx, *e)
	if err == nil {
		return
	}
	b.Log.Debug("the ledger does not know of a resource; the host does", zap.Error(err))
	if time.Since(began) >= callFor {
		b.silentUntil.Store(time.Now().Add(ledgerRest).UnixNano())
	}
}
