package proc

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"belay.run/internal/proc/supervisor/tree"
)

// controllers are those that the cgroups of steps have: the kernel keeps these
// limits.
type controllers struct{ memory, pids bool }

// enable turns the controllers on for the cgroups of steps below base, which
// lies below root, as far as the system lets it. Where processes live in root
// itself, the kernel refuses that for memory.
func enableControllers(root, base string) controllers {
	turnOn := func(name string) bool {
		for _, dir := range []string{root, base} {
			if !listed(filepath.Join(dir, "cgroup.controllers"), name) {
				return false
			}
			file := filepath.Join(dir, "cgroup.subtree_control")
			if !listed(file, name) && writeControl(file, "+"+name) != nil {
				return false
			}
		}
		return true
	}
	return controllers{memory: turnOn("memory"), pids: turnOn("pids")}
}

// listed says whether a file of words holds one.
func listed(file, word string) bool {
	text, err := os.ReadFile(file)
	return err == nil && slices.ContainsFunc(bytes.Fields(text), func(b []byte) bool { return string(b) == word })
}

// writeControl writes to a file of the kernel's, which is never made anew.
func writeControl(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// limit sets the limits of a step's cgroup and returns those that the kernel
// keeps from now on.
func (c controllers) limit(dir string, l Limits) (kept controllers) {
	set := func(file, value string) error { return writeControl(filepath.Join(dir, file), value) }
	if c.memory && l.Memory > 0 && hasPeak(dir) {
		err := set("memory.oom.group", "1") // what is left of a step is of no use
		if swap := set("memory.swap.max", "0"); !errors.Is(swap, fs.ErrNotExist) {
			err = errors.Join(err, swap)
		}
		kept.memory = errors.Join(err, set("memory.max", strconv.FormatInt(l.Memory, 10))) == nil
	}
	if c.pids && l.PIDs > 0 {
		// One more than allowed, so that going over can be seen.
		kept.pids = set("pids.max", strconv.Itoa(l.PIDs+1)) == nil
	}
	return kept
}

// hasPeak says whether the kernel, 5.19 or newer, tells the peak of a cgroup's
// memory, by which it is known that a step was ended for it.
func hasPeak(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "memory.peak"))
	return err == nil
}

// refusedForks says whether a fork in a cgroup was refused for its limit.
func refusedForks(c tree.Cgroup) bool {
	text, err := os.ReadFile(string(c) + "/pids.events")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("max ")); ok {
			return string(bytes.TrimSpace(value)) != "0"
		}
	}
	return false
}
