package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"

	"belay.run/internal/proc/supervisor"
	"belay.run/internal/proc/supervisor/tree"
)

// selfExe is this executable also after its file was replaced. A process that
// is not dumpable may still use it for itself.
const selfExe = "/proc/self/exe"

// hostPrefix begins the name of the cgroup of a host, below which its steps have
// theirs.
const hostPrefix = "belay."

// errNoCgroup says that cgroup v2 is not mounted.
var errNoCgroup = errors.New("cgroup v2 is not mounted")

// detectCgroup finds the directory below which the steps of a host get their
// cgroups, "" where there can be none.
func (h *Host) detectCgroup(o Options) error {
	if o.NoCgroup {
		h.noCgroup = "cgroups are turned off"
		return nil
	}
	if o.CgroupRoot != "" {
		return h.tryCgroup(o.CgroupRoot)
	}
	err := errNoCgroup
	for _, root := range cgroupRoots() {
		if err = h.tryCgroup(root); err == nil {
			h.log.Info("steps get cgroups of their own", zap.String("cgroup", string(h.cgroups)))
			return nil
		}
	}
	h.noCgroup = err.Error()
	h.log.Warn("steps get no cgroups: what a step leaves when its worker and its supervisor are both killed may not be found",
		zap.Error(err))
	return nil
}

// cgroupRoots lists where a cgroup might be made: in the worker's own, as a
// service manager delegates it, then at the root.
func cgroupRoots() []string {
	mount := cgroupMount()
	if mount == "" {
		return nil
	}
	roots := []string{mount}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return roots
	}
	for line := range bytes.Lines(text) {
		own, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::"))
		if dir := filepath.Join(mount, string(own)); ok && dir != mount {
			roots = []string{dir, mount}
		}
	}
	return roots
}

// cgroupMount is where cgroup v2 is mounted: at /sys/fs/cgroup, or in a
// directory of it beside the controllers of version 1.
func cgroupMount() string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		mount, kind, ok := bytes.Cut(line, []byte(" - "))
		if fields := bytes.Fields(mount); ok && len(fields) > 4 && bytes.HasPrefix(kind, []byte("cgroup2 ")) {
			return string(fields[4])
		}
	}
	return ""
}

// tryCgroup runs a process in a cgroup below root, which tells more than any
// look at permissions: delegation, kinds of cgroups and filters of system calls
// all have a say.
func (h *Host) tryCgroup(root string) error {
	if _, err := os.Stat(root); err != nil { // never make the root itself
		return fmt.Errorf("making a cgroup: %w", err)
	}
	removeEmptyHosts(root)
	base := filepath.Join(root, hostPrefix+h.id)
	probe := tree.Cgroup(filepath.Join(base, uniqueName("probe")))
	err := makeCgroup(string(probe))
	if err == nil {
		err = runProbe(string(probe))
		probe.WaitEmpty(supervisorSlack)
		err = errors.Join(err, probe.Remove())
	}
	if err != nil {
		_ = os.Remove(base) // stays while an earlier worker's steps are in it
		return fmt.Errorf("running a process in a cgroup below %s: %w", root, err)
	}
	h.cgroups = tree.Cgroup(base)
	h.controllers = enableControllers(root, base)
	return nil
}

// makeCgroup makes a cgroup and, if need be, that of its host, which another host
// may take for one that is left over and remove, as long as it is empty.
func makeCgroup(dir string) error {
	const tries = 10
	var err error
	for range tries {
		if err = os.MkdirAll(dir, 0o750); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// removeEmptyHosts removes what hosts that were killed left behind. The kernel
// removes no cgroup that has steps or processes in it.
func removeEmptyHosts(root string) {
	left, _ := filepath.Glob(filepath.Join(root, hostPrefix+"*")) // fails on bad patterns only
	for _, dir := range left {
		_ = syscall.Rmdir(dir) // one that is in use stays
	}
}

func runProbe(cgroup string) error {
	dir, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // opened to name the directory
	cmd := &exec.Cmd{
		Path: selfExe, Args: []string{supervisor.Name, supervisor.Probe}, Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())},
	}
	return cmd.Run()
}
