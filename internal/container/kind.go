package container

import (
	"context"

	"belay.run/internal/resource"
)

var _ resource.Kind = (*Host)(nil)

// Name is the kind of resource that containers are.
func (h *Host) Name() string { return resource.KindContainer }

// Acquire does nothing: the container is made by the client that the attempt
// starts.
func (h *Host) Acquire(context.Context, *resource.Entry, resource.Ask) (resource.Grant, error) {
	return resource.Grant{}, nil
}

// Release removes the container that bears the entry's name.
func (h *Host) Release(ctx context.Context, e *resource.Entry) error {
	return h.Remove(ctx, e.Name)
}
