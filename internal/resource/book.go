package resource

import (
	"context"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/run"
)

// Book is where the entries of a host's attempts are written: its own records,
// which must be, and the ledger, which is as far as it can be reached.
type Book struct {
	Records *Records
	Ledger  *Ledger
	Log     *zap.Logger
}

// Note writes an entry in a new state. An error means that it is written nowhere:
// what it is about must not be acquired.
func (b *Book) Note(ctx context.Context, e *Entry, state run.ResourceState) error {
	e.State, e.Since = state, time.Now().UTC()
	if err := b.Ledger.Note(ctx, *e); err != nil {
		b.Log.Debug("the ledger does not know of a resource; the host does", zap.Error(err))
	}
	if b.Records == nil {
		return nil
	}
	return b.Records.Note(e)
}
