package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"belay.run/internal/batch/control"
	"belay.run/internal/config"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

// Exit codes of every command.
const (
	ExitOK          = 0 // succeeded, or what was asked for is done
	ExitFailed      = 1 // the run failed, or the command did
	ExitUsage       = 2 // bad usage, invalid file, unknown run
	ExitRejected    = 3 // a duplicate, or a full group, was refused
	ExitCancelled   = 4 // the run was cancelled, or was left before its end
	ExitTimedOut    = 5 // the run timed out
	ExitUnreachable = 6 // a server that is needed cannot be reached
)

// ExitError ends a command with a code of its own. Err is what is shown; nil
// means that everything worth saying has been printed already.
type ExitError struct {
	Code int
	Err  error
	// Hint is what to do about it, in a sentence; it may be empty.
	Hint string
}

// Error is the message without the hint.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// usage is the error of a command that was called in a wrong way.
func usage(format string, args ...any) *ExitError {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// unreachable is the error of a command that cannot reach a server.
func unreachable(err error, hint string) *ExitError {
	return &ExitError{Code: ExitUnreachable, Err: err, Hint: hint}
}

// ended is the outcome of a run that is known: nil where it went well, else an
// error that only carries the code, since the run has been shown.
func ended(s run.Status) error {
	if code := exitCodeOf(s); code != ExitOK {
		return &ExitError{Code: code}
	}
	return nil
}

// endedRun is the same of a run that was followed. One whose concurrency group
// was full, and refused it, has a code of its own.
func endedRun(d *run.Document) error {
	if meaning(d) == run.Failed && d.Cause != nil && d.Cause.Trigger == run.TriggerGroupFull {
		return &ExitError{Code: ExitRejected}
	}
	return ended(meaning(d))
}

// exitCodeOf is the exit code of a command that followed a run until it ended.
func exitCodeOf(s run.Status) int {
	switch s {
	case run.Succeeded, run.Duplicate, run.Skipped:
		return ExitOK
	case run.Failed:
		return ExitFailed
	case run.TimedOut:
		return ExitTimedOut
	case run.Cancelled, run.Cancelling, run.Running, run.Pending:
		// Not ended: whoever followed it has left before its end.
		return ExitCancelled
	}
	return ExitFailed
}

// exitError gives any error a code: the one it bears, or the one of the kind of
// failure that it is.
func exitError(err error) *ExitError {
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit
	}
	var server *config.UnreachableError
	var unknown *runs.UnknownError
	var setting *config.SettingError
	var noBatch *control.UnknownError
	switch {
	case errors.As(err, &server):
		return &ExitError{Code: ExitUnreachable, Err: fmt.Errorf("cannot use %s at %s: %w", server.Service, server.Address, server.Err), Hint: server.Check}
	case errors.As(err, &unknown), errors.As(err, &setting), errors.As(err, &noBatch):
		return &ExitError{Code: ExitUsage, Err: err}
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return &ExitError{Code: ExitCancelled, Err: errInterrupted}
	case isUnreachable(err):
		return unreachable(err, "is Temporal running, and is a worker?")
	case lacksAttributes(err):
		return &ExitError{Code: ExitFailed, Err: err, Hint: attributesHint}
	case isNotFound(err):
		return &ExitError{Code: ExitUsage, Err: err}
	}
	return &ExitError{Code: ExitFailed, Err: err}
}

const attributesHint = "give the namespace the Keyword search attributes BelayTenant, BelayProject, BelayPipeline, " +
	"BelayStatus and BelayDedupKey: temporal operator search-attribute create --type Keyword --name …"

// lacksAttributes reports whether Temporal does not know a search attribute.
func lacksAttributes(err error) bool {
	invalid, ok := errors.AsType[*serviceerror.InvalidArgument](err)
	return ok && strings.Contains(strings.ToLower(invalid.Error()), "search attribute")
}

func isNotFound(err error) bool {
	var notFound *serviceerror.NotFound
	var noNamespace *serviceerror.NamespaceNotFound
	return errors.As(err, &notFound) || errors.As(err, &noNamespace)
}

// isUnreachable reports whether Temporal gave no answer at all.
func isUnreachable(err error) bool {
	var unavailable *serviceerror.Unavailable
	var deadline *serviceerror.DeadlineExceeded
	if errors.As(err, &unavailable) || errors.As(err, &deadline) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}
