package activities

import (
	"context"
	"errors"
	"fmt"

	"belay.run/internal/container"
	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/workspace"
)

// Workspaces gives back the workspaces of stages that have ended, with all
// processes, containers and directories that their steps and services left there.
type Workspaces struct {
	Host *workspace.Host
	Proc *proc.Host
	// Containers is the host's engine; nil where it has none.
	Containers *container.Host
}

var _ resource.Kind = (*Workspaces)(nil)

// Name is the kind's.
func (w *Workspaces) Name() string { return resource.KindWorkspace }

// Acquire is for stages only, which are bound to their host.
func (w *Workspaces) Acquire(context.Context, *resource.Entry, resource.Ask) (resource.Grant, error) {
	return resource.Grant{}, errors.New("a workspace is had by being bound to a host")
}

// Release ends what is left of the stage's processes, and removes its containers
// and its workspace.
func (w *Workspaces) Release(ctx context.Context, e *resource.Entry) error {
	if err := w.Proc.EndNode(ctx, processNode(e.RunKey, e.Node)); err != nil && !errors.Is(err, proc.ErrNotProved) {
		return fmt.Errorf("ending what is left of stage %s: %w", e.Node, err)
	}
	if err := RemoveContainers(ctx, w.Host, w.Containers, e.RunKey, e.Node); err != nil {
		return err
	}
	if err := w.Host.Release(ctx, e.RunKey, e.Node); err != nil {
		return fmt.Errorf("removing the workspace of stage %s: %w", e.Node, err)
	}
	return nil
}

// SettleWorkspace writes down that a host has given back the workspace of a stage
// that ended without it. There is nothing to write where nobody said that it was
// left.
func SettleWorkspace(ctx context.Context, r *Resources, runKey, node string) error {
	entries, err := r.Ledger.Of(ctx, runKey)
	errs := []error{err}
	for i := range entries {
		e := &entries[i]
		if e.Kind != resource.KindWorkspace || e.Node != node || e.Host != r.Host.ID() || !e.Open() {
			continue
		}
		e.Error = ""
		e.Attempts++
		errs = append(errs, r.book.Note(ctx, e, run.ResourceReleased))
		r.Meter.Released(e.Kind)
	}
	return errors.Join(errs...)
}
