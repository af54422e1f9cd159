package container

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

const (
	// awayBound is how long an engine may be away while a container of it is
	// waited for: a restart of the engine takes seconds.
	awayBound = 20 * time.Second
	awayLook  = 500 * time.Millisecond
	// look is how often one looks at what should soon be so.
	look = 100 * time.Millisecond
)

// patience bears an engine that is away for a while.
type patience struct{ since, tried time.Time }

// wait waits a moment before the next try, or returns the error where the
// engine has been away for too long. A try that took longer than an engine may
// take to answer was answered: the time starts anew.
func (p *patience) wait(err error) error {
	now := time.Now()
	if now.Sub(p.tried) > answerBound {
		p.since = now
	}
	if now.Sub(p.since) > awayBound {
		return fmt.Errorf("%w for %s: %w", ErrUnavailable, awayBound, err)
	}
	time.Sleep(awayLook)
	p.tried = time.Now()
	return nil
}

// Error is an error of an engine with what kind of fault it is.
type Error struct {
	Fault Fault
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *Error) Unwrap() error { return e.Err }

// faultOf is what kind of fault an error of the engine is.
func faultOf(err error) Fault {
	var memory *memoryError
	switch {
	case errors.As(err, &memory):
		return FaultMemory
	case errors.Is(err, ErrUnavailable), client.IsErrConnectionFailed(err):
		return FaultUnavailable
	case errdefs.IsInvalidArgument(err), errdefs.IsNotFound(err), errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		return FaultInvalid
	}
	return FaultUnavailable
}

// explained adds to an error what kind of fault it is.
func explained(err error) error {
	if client.IsErrConnectionFailed(err) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return &Error{faultOf(err), err}
}

// gone reports whether an error says that a container has ended or that there
// is none: to who wants to end it that is a success.
func gone(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsConflict(err)
}

// noInit reports whether a container could not be started because the engine
// has no program for the first process in it: docker-init, or Podman's catatonit.
func noInit(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "docker-init") ||
		strings.Contains(err.Error(), "catatonit") || strings.Contains(err.Error(), "init binary"))
}
