package task

import (
	"context"
	"sync/atomic"
)

// againKey is under which a context holds the mark of [NoteAgain].
type againKey struct{}

// NoteAgain returns a context for a job that sets the mark where the job asks its
// target once more.
func NoteAgain(ctx context.Context, mark *atomic.Bool) context.Context {
	return context.WithValue(ctx, againKey{}, mark)
}

// Again says that a job asks its target once more for the same, without an answer
// to the first: the target may have it twice. The result then says Retried.
func Again(ctx context.Context) {
	if mark, ok := ctx.Value(againKey{}).(*atomic.Bool); ok {
		mark.Store(true)
	}
}
