package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"belay.run/internal/proc/supervisor/tree"
)

// waitSlice is how often a wait for another process looks at its context.
const waitSlice = 100 * time.Millisecond

// leftovers are steps on this host that no running Process stands for.
type leftovers struct {
	records []record
	cgroups []tree.Cgroup // without a record
}

// end ends the running steps whose node is wanted, and then what else there is
// of such nodes.
func (h *Host) end(ctx context.Context, wanted func(node string) bool, hash string) error {
	own := h.processes(wanted)
	for _, p := range own {
		p.Terminate()
	}
	for _, p := range own {
		select {
		case <-p.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	left, err := h.findLeftovers(wanted, func(name string) bool { return strings.Contains(name, "."+hash+".") })
	if err != nil {
		return err
	}
	err = h.endLeftovers(ctx, left)
	if len(left.records) == 0 {
		return err
	}
	_, strayErr := h.endStrays(ctx, wanted)
	return errors.Join(err, strayErr)
}

// sweep ends all that is not of this process and whose node is unwanted alive.
func (h *Host) sweep(ctx context.Context, wanted func(node string) bool) (int, error) {
	left, err := h.findLeftovers(wanted, func(string) bool { return true })
	if err != nil {
		return 0, err
	}
	n := len(left.records) + len(left.cgroups)
	err = h.endLeftovers(ctx, left)
	if errors.Is(err, ErrNotProved) {
		h.log.Warn("a step of an earlier worker could not be proved gone", zap.Error(err))
		err = nil
	}
	strays, strayErr := h.endStrays(ctx, wanted)
	for _, r := range left.records {
		delete(strays, r.Node) // counted already
	}
	return n + len(strays), errors.Join(err, strayErr)
}

// findLeftovers lists the steps of earlier workers by their records, and by
// their cgroups where no record is left. No step of this process starts
// meanwhile, so what is not noted as running is nobody's.
func (h *Host) findLeftovers(wanted func(node string) bool, wantedName func(string) bool) (leftovers, error) {
	h.forking.Lock()
	defer h.forking.Unlock()
	known := map[string]bool{}
	for _, p := range h.processes(func(string) bool { return true }) {
		known[p.name] = true
	}
	var left leftovers
	names, err := namesIn(h.records, recordSuffix)
	if err != nil {
		return left, fmt.Errorf("reading the records of steps: %w", err)
	}
	for _, name := range names {
		if known[name] {
			continue
		}
		known[name] = true
		r, err := h.readRecord(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // its supervisor has just finished
		}
		if err != nil {
			h.log.Warn("the record of a step cannot be read; its cgroup is swept", zap.String("record", r.file), zap.Error(err))
		}
		if r.Node != "" && wanted(r.Node) || r.Node == "" && wantedName(name) {
			left.records = append(left.records, r)
		}
	}
	if h.cgroups == "" {
		return left, nil
	}
	names, err = namesIn(string(h.cgroups), "")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return left, fmt.Errorf("reading the cgroups of steps: %w", err)
	}
	for _, name := range names {
		path := filepath.Join(string(h.cgroups), name)
		if info, err := os.Stat(path); err == nil && info.IsDir() && !known[name] && wantedName(name) {
			left.cgroups = append(left.cgroups, tree.Cgroup(path))
		}
	}
	return left, nil
}

// endLeftovers ends steps of earlier workers, all at the same time, since each
// may take its grace period.
func (h *Host) endLeftovers(ctx context.Context, left leftovers) error {
	var wg sync.WaitGroup
	errs := make([]error, len(left.records)+len(left.cgroups))
	for i, r := range left.records {
		wg.Go(func() { errs[i] = h.endRecorded(ctx, r) })
	}
	for i, c := range left.cgroups {
		wg.Go(func() { errs[len(left.records)+i] = h.endAndRemove(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endRecorded ends a step by its record. A supervisor that lives is at it: its
// worker is dead. One that was stopped is woken, one that takes too long is
// killed.
func (h *Host) endRecorded(ctx context.Context, r record) error {
	if r.Boot != h.boot {
		return r.remove() // nothing lives of another boot
	}
	proved := false
	if handle, ok := r.supervisorLives(h.boot); ok {
		defer handle.Close()
		_ = handle.Signal(unix.SIGCONT) // it may have ended
		ended, err := waitFor(ctx, handle, r.Grace+supervisorSlack)
		if err != nil {
			return err
		}
		if !ended {
			_ = handle.Signal(unix.SIGKILL) // it may have ended
			handle.Wait(supervisorSlack)
		}
		_, err = os.Stat(r.file)
		proved = errors.Is(err, os.ErrNotExist) // it removes the record last
	}
	if proved {
		return nil
	}
	if r.Cgroup != "" {
		if err := h.endAndRemove(tree.Cgroup(r.Cgroup)); err != nil {
			return err
		}
		return r.remove()
	}
	return errors.Join(r.remove(), fmt.Errorf("%w: the worker and the supervisor of %s were killed and it had no cgroup", ErrNotProved, r.Node))
}

// waitFor waits for the end of a process.
func waitFor(ctx context.Context, handle tree.Handle, bound time.Duration) (ended bool, err error) {
	for deadline := time.Now().Add(bound); ; {
		left := time.Until(deadline)
		if handle.Wait(min(left, waitSlice)) {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if left <= 0 {
			return false, nil
		}
	}
}

// endAndRemove ends what is in a cgroup that has no supervisor.
func (h *Host) endAndRemove(c tree.Cgroup) error {
	end := endCgroup(c, h.killBound)
	if !end.gone {
		return fmt.Errorf("%w: %s", ErrStillAlive, end.note)
	}
	return c.Remove()
}

// namesIn lists the entries of a directory that end in a suffix, without it.
func namesIn(dir, suffix string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // opened to read
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names := entries[:0]
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e, suffix); ok {
			names = append(names, name)
		}
	}
	return names, nil
}
