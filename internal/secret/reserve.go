package secret

import (
	"context"
	"fmt"
	"slices"
)

// Reserve is a provider that keeps some names for its holder: to those who are
// given what it returns, they are refused.
func Reserve(p Provider, names ...string) Provider { return reserved{p, names} }

type reserved struct {
	Provider

	names []string
}

// Get refuses the names that are kept.
func (r reserved) Get(ctx context.Context, name string) (Value, error) {
	if slices.Contains(r.names, name) {
		return Value{}, fmt.Errorf("secret %s: it is the worker's own, as its settings say: give pipelines and tasks another one", name)
	}
	return r.Provider.Get(ctx, name)
}
