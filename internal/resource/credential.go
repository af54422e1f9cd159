package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"belay.run/internal/command"
	"belay.run/internal/secret"
)

const (
	// issueWithin bounds a call of a provider.
	issueWithin = 10 * time.Second
	// alreadyGone is the exit code by which revoke says that there is nothing
	// to revoke any more.
	alreadyGone = 3
	// maxIssued is how much a provider may print.
	maxIssued = 256 << 10
)

// Credentials are issued for an attempt and revoked after it, by commands that
// the worker's settings name.
type Credentials struct {
	// Providers are command lines by name.
	Providers map[string][]string
}

var (
	_ Kind    = (*Credentials)(nil)
	_ Checker = (*Credentials)(nil)
)

// Name is the kind's.
func (c *Credentials) Name() string { return KindCredential }

// Check says where no provider bears the name.
func (c *Credentials) Check(e *Entry) error {
	_, err := c.provider(e)
	return err
}

func (c *Credentials) provider(e *Entry) ([]string, error) {
	provider := c.Providers[e.Provider]
	if len(provider) == 0 {
		return nil, fmt.Errorf("the provider of credentials %q %w: no credentials setting of this worker names it", e.Provider, ErrUnavailable)
	}
	return provider, nil
}

// issued is what a provider prints: an id to revoke it by, and the value of the
// variable that bears the resource's name, or variables of other names.
type issued struct {
	ID    string            `json:"id"`
	Value string            `json:"value"`
	Env   map[string]string `json:"env"`
}

// Acquire has a credential issued. What the provider prints is never shown.
func (c *Credentials) Acquire(ctx context.Context, e *Entry, _ Ask) (Grant, error) {
	out, err := c.call(ctx, e, "issue", e.Name)
	if err != nil {
		return Grant{}, err
	}
	var got issued
	if err := json.Unmarshal(out, &got); err != nil {
		return Grant{}, fmt.Errorf(`the provider %s printed no JSON like {"id": "…", "value": "…"} for issue %s`, e.Provider, e.Name)
	}
	values := got.Env
	if got.Value != "" {
		values = maps.Clone(values)
		if values == nil {
			values = map[string]string{}
		}
		values[e.Name] = got.Value
	}
	switch {
	case len(got.ID) > MaxID:
		return Grant{}, fmt.Errorf("the provider %s gave %s an id of more than %d bytes", e.Provider, e.Name, MaxID)
	case len(values) == 0:
		return Grant{}, fmt.Errorf("the provider %s issued %s without a value", e.Provider, e.Name)
	}
	e.ID = got.ID
	var g Grant
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name == "" || strings.ContainsAny(name+values[name], "\x00") || strings.Contains(name, "=") {
			return Grant{}, fmt.Errorf("the provider %s issued %s with a variable that no process can be given", e.Provider, e.Name)
		}
		g.Secrets = append(g.Secrets, secret.NewValue(name, values[name]))
	}
	return g, nil
}

// Release has it revoked. One that is revoked already, or has expired, is.
func (c *Credentials) Release(ctx context.Context, e *Entry) error {
	_, err := c.call(ctx, e, "revoke", e.Name, e.ID)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == alreadyGone {
		return nil
	}
	return err
}

// call runs a provider. Its standard error is not shown, as it may hold secrets.
func (c *Credentials) call(ctx context.Context, e *Entry, args ...string) ([]byte, error) {
	provider, err := c.provider(e)
	if err != nil {
		return nil, err
	}
	out, err := command.Call{
		Argv: slices.Concat(provider, args), Env: []string{EnvHolder + "=" + e.Holder()}, Most: maxIssued, Within: issueWithin,
	}.Output(ctx)
	if err != nil {
		return nil, fmt.Errorf("the provider %s could not %s %s: %w", e.Provider, args[0], e.Name, err)
	}
	return out, nil
}
