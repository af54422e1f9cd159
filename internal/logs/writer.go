package logs

import (
	"context"
	"errors"
	"io"
)

// Writer writes the log of one attempt.
type Writer struct{}

// Open begins the log of an attempt. The writer goes on after ctx is done, until
// Close, since what a step prints while it is being cancelled counts most.
func (l *Logs) Open(ctx context.Context, step Step, o Options) (*Writer, error) {
	return nil, errors.ErrUnsupported
}

// Stdout takes the step's standard output. Like Stderr, it never fails before
// Close, so that a step is not ended by its log: what cannot be kept is counted.
func (w *Writer) Stdout() io.Writer { return nil }

// Stderr takes the step's standard error.
func (w *Writer) Stderr() io.Writer { return nil }

// System adds a line of Belay's own. It is kept also past the limit.
func (w *Writer) System(msg string) {}

// Tail is the end of the output, for error messages: at most 20 lines and 4 KiB
// of valid UTF-8.
func (w *Writer) Tail() []byte { return nil }

// Close writes what is pending and ends the log. Its error says why output was
// lost, if the store did not take it. It never waits for longer than ctx lasts.
// It is safe to call twice.
func (w *Writer) Close(ctx context.Context) (Summary, error) { return Summary{}, nil }
