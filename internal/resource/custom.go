package resource

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Custom is what scripts of the user acquire and release.
type Custom struct {
	Scripts Scripts
}

// Scripts runs the scripts of a custom resource as a step's are run.
type Scripts interface {
	// Acquire runs the script and returns the value of the last id= that it
	// wrote.
	Acquire(ctx context.Context, e *Entry, script string) (id string, err error)
	// Release runs the entry's release command with these variables more.
	Release(ctx context.Context, e *Entry, env map[string]string) error
}

var _ Kind = (*Custom)(nil)

// Name is the kind's.
func (c *Custom) Name() string { return KindCustom }

// Acquire runs the script. It has acquired something where it ends with 0.
func (c *Custom) Acquire(ctx context.Context, e *Entry, ask Ask) (Grant, error) {
	id, err := c.Scripts.Acquire(ctx, e, ask.Acquire)
	if err != nil {
		return Grant{}, err
	}
	if len(id) > MaxID || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return Grant{}, fmt.Errorf("the id that acquire gave %s is no text of at most %d bytes", e.Name, MaxID)
	}
	e.ID = id
	return Grant{Env: map[string]string{EnvCustomID + EnvName(e.Name): id}}, nil
}

// Release runs the release script, with the id that acquire gave, or an empty one
// where it was stopped before it could.
func (c *Custom) Release(ctx context.Context, e *Entry) error {
	return c.Scripts.Release(ctx, e, map[string]string{EnvResourceID: e.ID, EnvHolder: e.Holder()})
}
