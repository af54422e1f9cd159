package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"belay.run/internal/pause"
	"belay.run/internal/run"
)

// remove ends a container without grace and removes it with its volumes. That
// there is none is a success.
func remove(ctx context.Context, api *client.Client, name string) error {
	_, err := api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err):
		return awaitRemoval(ctx, api, name)
	}
	return fmt.Errorf("removing the container %s: %w", name, err)
}

// awaitRemoval waits until a container is gone that somebody else removes
// already.
func awaitRemoval(ctx context.Context, api *client.Client, name string) error {
	for {
		_, err := api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for the removal of the container %s: %w", name, err)
		}
		if err := pause.For(ctx, look); err != nil {
			return fmt.Errorf("waiting for the removal of the container %s: %w", name, err)
		}
	}
}

// Remove removes a container by its name. That there is none is a success.
func (h *Host) Remove(ctx context.Context, name string) error {
	return remove(ctx, h.api, name)
}

// RemoveNode removes all containers and networks of this host that belong to a
// node of a run or to a node below it, of whatever attempt.
func (h *Host) RemoveNode(ctx context.Context, runKey, node string) error {
	return h.removeAll(ctx, func(f found) bool {
		return f.owner.RunKey == runKey && run.Within(f.owner.Node, node)
	}, labelRun+"="+runKey)
}

// Sweep removes what attempts and stages have left on this host: containers of
// steps that no attempt of this process holds, services and networks whose stage
// has ended. It returns how many it removed.
func (h *Host) Sweep(ctx context.Context, ended func(ctx context.Context, o Owner) (bool, error)) (int, error) {
	list, err := h.list(ctx)
	if err != nil {
		return 0, err
	}
	removed := 0
	var errs []error
	for _, f := range list {
		over := f.kind == kindStep && !h.used(f.name)
		if !over && f.kind != kindStep {
			if over, err = ended(ctx, f.owner); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if !over {
			continue
		}
		if err := h.discard(ctx, f); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

func (h *Host) removeAll(ctx context.Context, wanted func(found) bool, labels ...string) error {
	list, err := h.list(ctx, labels...)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range list {
		if wanted(f) {
			errs = append(errs, h.discard(ctx, f))
		}
	}
	return errors.Join(errs...)
}

// found is a container or network of this host.
type found struct {
	id, name, kind string
	owner          Owner
}

// list finds what of this host's the engine has: networks last, as they can be
// removed when no container is in them.
func (h *Host) list(ctx context.Context, labels ...string) ([]found, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	only := make(client.Filters).Add("label", labelHost+"="+h.opts.HostID).Add("label", labels...)
	containers, err := h.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: only})
	if err != nil {
		return nil, fmt.Errorf("looking for containers: %w", explained(err))
	}
	networks, err := h.api.NetworkList(ctx, client.NetworkListOptions{Filters: only})
	if err != nil {
		return nil, fmt.Errorf("looking for networks of containers: %w", explained(err))
	}
	out := make([]found, 0, len(containers.Items)+len(networks.Items))
	for _, c := range containers.Items {
		f := found{id: c.ID, kind: c.Labels[labelKind], owner: ownerOf(c.Labels)}
		if len(c.Names) > 0 {
			f.name = c.Names[0][1:] // they begin with a slash
		}
		out = append(out, f)
	}
	for _, n := range networks.Items {
		out = append(out, found{id: n.ID, name: n.Name, kind: kindNetwork, owner: ownerOf(n.Labels)})
	}
	return out, nil
}

func (h *Host) discard(ctx context.Context, f found) error {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	if f.kind != kindNetwork {
		return remove(ctx, h.api, f.id)
	}
	if _, err := h.api.NetworkRemove(ctx, f.id, client.NetworkRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("removing the network %s: %w", f.name, err)
	}
	return nil
}
