package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// discard removes the directories of the stage whose name the caller has
// locked. They are moved aside first: a stage bound again never sees what is
// left of them.
func (h *Host) discard(ctx context.Context, name string) error {
	if err := h.moveAside(name); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(h.dir, trashDir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if owner(e.Name()) == name {
			errs = append(errs, h.Remove(ctx, filepath.Join(h.dir, trashDir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func (h *Host) moveAside(name string) error {
	from := h.stage(name)
	to := filepath.Join(h.dir, trashDir, name+"."+newID())
	err := unix.Rename(from, to)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		// Moving a directory changes the ".." in it, which needs the right to
		// write it, and that it is not marked immutable.
		if err := h.permitStage(name); err != nil {
			return err
		}
		err = unix.Rename(from, to)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return &MountedError{Path: from}
	}
	return fmt.Errorf("moving %s aside: %w", from, err)
}

func (h *Host) permitStage(name string) error {
	stages, err := openBeneath(h.dir, stagesDir)
	if err != nil {
		return err
	}
	defer stages.Close() //nolint:errcheck // only read
	unprotect(stages, name)
	dir, err := openDir(stages, name)
	if err != nil {
		return err
	}
	return errors.Join(permit(dir), dir.Close())
}

// owner is the name of the stage that something in the trash was of.
func owner(trash string) string {
	if i := strings.LastIndexByte(trash, '.'); i >= 0 {
		return trash[:i]
	}
	return trash
}

// Sweep removes what no live run owns: the stages that live denies, those bound
// before the machine was booted, and directories without a record. A stage
// about which live fails is kept. It goes on past what it cannot remove and
// returns all errors.
func (h *Host) Sweep(ctx context.Context, live func(context.Context, Binding) (bool, error)) error {
	bindings, err := h.Bindings()
	if errors.Is(err, errDamaged) {
		err = nil // swept as strays below
	}
	for _, b := range bindings {
		err = errors.Join(err, h.sweepBinding(ctx, b, live))
	}
	return errors.Join(err, h.sweepStrays(ctx))
}

func (h *Host) sweepBinding(ctx context.Context, b Binding, live func(context.Context, Binding) (bool, error)) error {
	if b.Boot == h.boot {
		alive, err := live(ctx, b)
		if err != nil {
			return fmt.Errorf("asking whether %s of run %s is live: %w", b.Node, b.RunKey, err)
		}
		if alive {
			return nil
		}
	}
	return h.ifUnchanged(ctx, stageName(b.RunKey, b.Node), &b)
}

// ifUnchanged releases the stage of that name unless its record is not (any
// more) the given one: it may have been bound again meanwhile. A nil record
// means that there was none.
func (h *Host) ifUnchanged(ctx context.Context, name string, was *Binding) error {
	unlock, err := h.busy.lock(ctx, name)
	if err != nil {
		return fmt.Errorf("sweeping %s: %w", name, err)
	}
	defer unlock()
	now, found, err := h.read(name)
	switch {
	case err != nil && !errors.Is(err, errDamaged):
		return explain(h.dir, "sweeping", err)
	case found && (was == nil || now != *was):
		return nil
	}
	return explain(h.dir, "sweeping "+name+" in", h.release(ctx, name))
}

// sweepStrays removes what has no record, or one that cannot be read.
func (h *Host) sweepStrays(ctx context.Context) error {
	names, err := h.records()
	errs := []error{err}
	for _, dir := range []string{stagesDir, trashDir} {
		entries, err := os.ReadDir(filepath.Join(h.dir, dir))
		errs = append(errs, explain(h.dir, "sweeping", err))
		for _, e := range entries {
			name := e.Name()
			if dir == trashDir {
				name = owner(name)
			}
			names = append(names, name)
		}
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			errs = append(errs, h.ifUnchanged(ctx, name, nil))
		}
	}
	return errors.Join(errs...)
}
