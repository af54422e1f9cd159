package executor

import (
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// Fallback stands in for a target that is not well: tasks of its type succeed
// where the circuit of their target is open, or where they failed by the target's
// fault.
type Fallback struct {
	// Output is what such a task found out. Without one it is left out.
	Output task.Output
}

// skip is the fallback without an output, in a file.
const skip = "skip"

// UnmarshalYAML reads one as a file of limits has it: skip, or its output.
func (f *Fallback) UnmarshalYAML(n *yaml.Node) error {
	wrong := fmt.Errorf("line %d: expected %s, or output: with what such a task is to find out", n.Line, skip)
	if n.Kind == yaml.ScalarNode {
		if n.Value != skip {
			return wrong
		}
		*f = Fallback{}
		return nil
	}
	var given map[string]task.Output
	if err := n.Decode(&given); err != nil || len(given) != 1 || given["output"] == nil {
		return wrong
	}
	f.Output = given["output"]
	return nil
}

// complete returns limits with their defaults, or what is wrong with them.
func (c *Config) complete(l Limits) (Limits, error) {
	full, err := l.complete()
	if err == nil {
		err = c.checkFallbacks(l.Fallbacks)
	}
	if err != nil {
		return full, fmt.Errorf("the limits of light tasks: %w", err)
	}
	return full, nil
}

// checkFallbacks holds fallbacks to the types that there are, and to what those
// find out.
func (c *Config) checkFallbacks(all map[string]Fallback) error {
	checker, ok := c.Registry.(OutputChecker)
	if !ok {
		return nil
	}
	for _, typ := range slices.Sorted(maps.Keys(all)) {
		if err := checker.CheckOutput(typ, all[typ].Output); err != nil {
			return fmt.Errorf("fallbacks: %w", err)
		}
	}
	return nil
}

// fallBack has the fallback of a task's type answer in place of its target.
func (e *Executor) fallBack(it *item, r *task.Result) {
	fallback, ok := (*e.fallbacks.Load())[it.task.Type]
	if !ok || !r.Error.Fault && r.Error.Trigger != run.TriggerDependencyUnavailable {
		return
	}
	out := task.Output{task.FallbackOutput: true}
	maps.Copy(out, fallback.Output)
	r.Status, r.Output, r.Error = task.Succeeded, out, nil
	it.fellBack = true
}
