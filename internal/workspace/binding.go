package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// errDamaged marks a record that names nobody: its directories are strays.
var errDamaged = errors.New("damaged record")

// Binding records that a stage of a run is bound to this host: its steps run
// here, in its directories.
type Binding struct {
	// RunKey and Node name the stage.
	RunKey string `json:"run_key"`
	Node   string `json:"node"`
	// WorkflowID and RunID are the stage's workflow: as long as it is open the
	// stage is live.
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
	// At is when the stage was bound.
	At time.Time `json:"at"`
	// Boot is the boot of the machine on which it was bound; Bind sets it.
	Boot string `json:"boot"`
}

// Bind records the stage and creates its directories. Bound again, it keeps
// both; after another boot, of which no process is left, the stage starts with
// empty directories.
func (h *Host) Bind(ctx context.Context, b Binding) (Dirs, error) {
	if b.RunKey == "" || b.Node == "" {
		return Dirs{}, errors.New("binding a stage: its run key and node are needed")
	}
	name := stageName(b.RunKey, b.Node)
	unlock, err := h.busy.lock(ctx, name)
	if err != nil {
		return Dirs{}, fmt.Errorf("binding %s: %w", b.Node, err)
	}
	defer unlock()
	if err := h.bind(ctx, name, b); err != nil {
		return Dirs{}, explain(h.dir, "binding "+b.Node+" in", err)
	}
	return dirsAt(h.stage(name)), nil
}

func (h *Host) bind(ctx context.Context, name string, b Binding) error {
	old, found, err := h.read(name)
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	if !found || old.Boot != h.boot {
		if err := h.discard(ctx, name); err != nil {
			return err
		}
	}
	b.Boot, b.At = h.boot, b.At.Round(0).UTC()
	if found && old.Boot == h.boot {
		b.At = old.At
	}
	if b != old {
		if err := h.write(name, b); err != nil {
			return err
		}
	}
	for _, dir := range dirsAt(h.stage(name)).all() {
		if err := makeDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// Bindings returns what is bound to this host, in the order of binding. With an
// error it returns those that could be read.
func (h *Host) Bindings() ([]Binding, error) {
	names, err := h.records()
	if err != nil {
		return nil, err
	}
	var out []Binding
	var errs []error
	for _, name := range names {
		b, found, err := h.read(name)
		if found {
			out = append(out, b)
		}
		errs = append(errs, err)
	}
	slices.SortStableFunc(out, func(a, b Binding) int { return a.At.Compare(b.At) })
	return out, explain(h.dir, "reading", errors.Join(errs...))
}

// Count is how many stages are bound to this host.
func (h *Host) Count() (int, error) {
	names, err := h.records()
	return len(names), err
}

// Release removes the stage's directories, then its record. It is done at once
// where there is nothing, and may be repeated after an error.
func (h *Host) Release(ctx context.Context, runKey, node string) error {
	name := stageName(runKey, node)
	unlock, err := h.busy.lock(ctx, name)
	if err != nil {
		return fmt.Errorf("releasing %s: %w", node, err)
	}
	defer unlock()
	if err := h.release(ctx, name); err != nil {
		return explain(h.dir, "releasing "+node+" in", err)
	}
	return nil
}

// release is Release of the stage whose name the caller has locked.
func (h *Host) release(ctx context.Context, name string) error {
	if err := h.discard(ctx, name); err != nil {
		return err
	}
	if err := os.Remove(h.record(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// records lists the names of the recorded stages.
func (h *Host) records() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(h.dir, bindingsDir))
	if err != nil {
		return nil, explain(h.dir, "reading", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, nil
}

// read returns the record of that name, if there is one.
func (h *Host) read(name string) (b Binding, found bool, err error) {
	raw, err := os.ReadFile(h.record(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Binding{}, false, nil
	}
	if err != nil {
		return Binding{}, false, err
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return Binding{}, false, fmt.Errorf("%w: %s: %w", errDamaged, h.record(name), err)
	}
	return b, true, nil
}

func (h *Host) write(name string, b Binding) error {
	raw, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", b.Node, err)
	}
	return writeFile(h.record(name), raw)
}
