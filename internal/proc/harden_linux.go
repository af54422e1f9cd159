package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Harden keeps other processes of the same user, steps among them, from
// reading the memory, the environment and the open files of this one. The main
// function of a worker calls it first. Root can still look.
func Harden() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("closing this process to others: %w", err)
	}
	return nil
}
