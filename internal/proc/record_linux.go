package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"belay.run/internal/proc/supervisor/tree"
)

const recordSuffix = ".json"

// record is what a host writes down of a step before it starts it, for a worker
// that comes after.
type record struct {
	Node       string        `json:"node"`
	Boot       string        `json:"boot"`
	Supervisor int           `json:"supervisor"`
	Start      uint64        `json:"start"` // of the supervisor, in ticks since boot
	Cgroup     string        `json:"cgroup,omitempty"`
	Grace      time.Duration `json:"grace"`

	file string
}

// supervisorLives takes hold of the supervisor if it lives: the pid with the
// start time, in this boot, is the very process.
func (r record) supervisorLives(boot string) (tree.Handle, bool) {
	if r.Boot != boot {
		return tree.Handle{}, false
	}
	handle, err := tree.Open(r.Supervisor)
	if err != nil {
		return tree.Handle{}, false
	}
	stat, err := tree.ReadStat(r.Supervisor)
	if err != nil || stat.Dead() || stat.Start != r.Start {
		handle.Close()
		return tree.Handle{}, false
	}
	return handle, true
}

// write writes the record to its file.
func (r record) write() error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the record of a step: %w", err)
	}
	if err := os.WriteFile(r.file, text, 0o600); err != nil {
		return fmt.Errorf("writing the record of a step: %w", err)
	}
	return nil
}

// remove removes the record.
func (r record) remove() error {
	if err := os.Remove(r.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the record of a step: %w", err)
	}
	return nil
}

// readRecord reads the record of that name. One that makes no sense still has
// its name, which is that of its cgroup too.
func (h *Host) readRecord(name string) (record, error) {
	r := record{Boot: h.boot, file: filepath.Join(h.records, name+recordSuffix)}
	text, err := os.ReadFile(r.file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if filepath.Base(r.Cgroup) != name { // never end another cgroup
		r.Cgroup = ""
	}
	if r.Cgroup == "" && err != nil && h.cgroups != "" {
		r.Cgroup = filepath.Join(string(h.cgroups), name)
	}
	return r, err
}

// bootID names the boot of the machine: pids of another mean nothing.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(text))
}

// stepName names the record and the cgroup of a step: a part that people can
// read, a hash that finds the node again, and what makes it unique.
func stepName(node string) string {
	readable := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			return c
		}
		return '_'
	}, node)
	const most = 100
	return uniqueName(readable[max(0, len(readable)-most):] + "." + nodeHash(node))
}

// uniqueName adds to a name what makes it differ from all others.
func uniqueName(prefix string) string {
	return prefix + "." + rand.Text()[:12]
}
