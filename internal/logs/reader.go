package logs

import (
	"context"
	"errors"
)

// Replay calls fn for each record of a run that f selects, in the order of
// time, and returns at the end of what there is now. An error of fn ends it and
// is returned.
func (l *Logs) Replay(ctx context.Context, runKey string, f Filter, fn func(Record) error) error {
	return errors.ErrUnsupported
}

// Follow is Replay that goes on with what is written meanwhile, as it comes:
// each record once, those of a node in order. It returns nil when done is
// closed, which says that the run is over, and all was delivered.
func (l *Logs) Follow(ctx context.Context, runKey string, f Filter, done <-chan struct{}, fn func(Record) error) error {
	return errors.ErrUnsupported
}

// Last is the end of the newest attempt of a node, about max bytes of it: what a
// person looks at first.
func (l *Logs) Last(ctx context.Context, runKey, node string, max int) ([]Record, error) {
	return nil, errors.ErrUnsupported
}
