// Package need lets a test say what of the machine it cannot do without. Where
// that is missing the test is skipped and names what is to be done; under
// CI=true it fails instead, unless .ci/skips lists it with a reason, so that no
// test vanishes from CI unseen.
package need

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program returns the path of a program that the test runs. The remedy says how
// it is installed, e.g. "apt-get install redis-server".
func Program(tb testing.TB, name, remedy string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		lacks(tb, "the program "+name, remedy)
	}
	return path
}

// Root demands that the test runs as root.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		lacks(tb, "root", "run the tests as root")
	}
}

// Linux demands Linux, for what other systems do without.
func Linux(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		lacks(tb, "Linux", "run the tests on Linux")
	}
}

// Cgroup demands a cgroup v2 hierarchy in which directories can be made, with
// cgroup.kill (Linux 5.14), and returns where it is mounted.
func Cgroup(tb testing.TB) string {
	tb.Helper()
	const remedy = "run the tests as root on Linux 5.14 or newer with cgroup v2 mounted writable"
	mount := cgroupMount("/proc/self/mountinfo")
	if mount == "" {
		lacks(tb, "cgroup v2", remedy)
		return ""
	}
	dir, err := os.MkdirTemp(mount, "belay-need-") //nolint:usetesting // it must lie in the hierarchy
	if err != nil {
		lacks(tb, "a writable cgroup v2", remedy)
		return ""
	}
	defer func() {
		if err := os.Remove(dir); err != nil {
			tb.Errorf("removing the probe %s: %v", dir, err)
		}
	}()
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		lacks(tb, "cgroup.kill", remedy)
	}
	return mount
}

// cgroupMount finds where cgroup v2 is mounted, "" where it is not.
func cgroupMount(mountinfo string) string {
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			return fields[4]
		}
	}
	return ""
}

// Engine demands a container engine that tests may use, and returns the address
// of its socket. The variable that names it is for tests alone: a developer's
// own engine is not theirs to use.
func Engine(tb testing.TB) string {
	tb.Helper()
	address := os.Getenv("BELAY_TEST_ENGINE")
	if address == "" {
		lacks(tb, "a container engine", "as root with docker.io installed: eval \"$(.ci/engine start)\"")
	}
	return address
}
