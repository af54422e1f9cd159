package workspace

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// bootIDPath is where Linux tells one boot of the machine from the next.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// bootID returns the kernel's id of this boot of the machine.
func bootID() (string, error) {
	raw, err := os.ReadFile(bootIDPath)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	// Some sandboxed kernels have no boot id, but all tell when they booted.
	stat, statErr := os.ReadFile("/proc/stat")
	if m := regexp.MustCompile(`(?m)^btime (\d+)$`).FindSubmatch(stat); statErr == nil && m != nil {
		return "btime-" + string(m[1]), nil
	}
	return "", fmt.Errorf("reading the kernel's boot id: %w", err)
}
