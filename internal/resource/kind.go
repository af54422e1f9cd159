package resource

import (
	"context"
	"errors"
	"strings"

	"belay.run/internal/secret"
)

// The kinds that a file may name, and those that every step and stage has.
const (
	KindLock       = "lock"
	KindSlot       = "slot"
	KindPort       = "port"
	KindTempDir    = "temp_dir"
	KindCustom     = "custom"
	KindCredential = "credential"
	KindProcess    = "process"
	KindContainer  = "container"
	KindWorkspace  = "workspace"
)

// Kind is one kind of resource. Its methods are safe for concurrent use.
type Kind interface {
	// Name is the kind as files name it.
	Name() string
	// Acquire acquires what the entry names, which has been written down
	// before, and may set the entry's ID. It returns when that is done or ctx
	// ends. After an error Release is called all the same.
	Acquire(ctx context.Context, e *Entry, ask Ask) (Grant, error)
	// Release gives back what the entry names. It does nothing, without an
	// error, where that was never acquired, or is given back already. It is
	// called again after an error, also by another process than the one that
	// acquired it.
	Release(ctx context.Context, e *Entry) error
}

// Keeper is a kind that is lost where nobody says now and then that it is still
// held.
type Keeper interface {
	// Keep does so until ctx ends. Lost is called, at most once, where another
	// holds it.
	Keep(ctx context.Context, e Entry, lost func(error))
}

// Checker is a kind of which a host may know beforehand that it cannot acquire
// something.
type Checker interface {
	// Check says why not. It is asked before the entry is written down: nothing
	// is to be given back then.
	Check(e *Entry) error
}

// Ask is what an acquirer may need to know beside the entry.
type Ask struct {
	// Acquire is the script of a custom resource.
	Acquire string
	// Waiting is told what is waited for; the holder may be unknown.
	Waiting func(position int, holder string)
}

// Grant is what a step gets of what it holds.
type Grant struct {
	Env map[string]string
	// Secrets are variables, too; their values are masked.
	Secrets []secret.Value
}

// ErrUnavailable is returned where what a kind depends on cannot be reached, and
// one has waited long enough for it.
var ErrUnavailable = errors.New("is not available")

// Exclusive reports whether a kind must not go to another while processes of its
// holder may live.
func Exclusive(kind string) bool {
	switch kind {
	case KindLock, KindSlot, KindPort, KindWorkspace:
		return true
	}
	return false
}

// HostBound reports whether only the host that holds something of a kind can give
// it back.
func HostBound(kind string) bool {
	switch kind {
	case KindPort, KindTempDir, KindContainer, KindWorkspace:
		return true
	}
	return false
}

// EnvName is the part of a variable's name that stands for a resource: in upper
// case, with _ for what no variable may have in its name.
func EnvName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// The variables by which steps learn of what they hold: prefixes, save
// EnvResourceID, which is for a release script, and EnvHolder, which tells who
// acquires and releases for whom: what was acquired for one who was stopped before
// it heard of it can be found by that.
const (
	EnvLockToken  = "BELAY_LOCK_TOKEN_" //nolint:gosec // the name of a variable
	EnvPort       = "BELAY_PORT_"
	EnvDir        = "BELAY_DIR_"
	EnvCustomID   = "BELAY_RESOURCE_ID_"
	EnvResourceID = "BELAY_RESOURCE_ID"
	EnvHolder     = "BELAY_HOLDER"
)
