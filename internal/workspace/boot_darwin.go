package workspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// bootID returns the kernel's id of this boot of the machine.
func bootID() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("reading the kernel's boot id: %w", err)
	}
	return id, nil
}
