package workspace

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain also is the child process of tests that need another user, or
// another process at all.
func TestMain(m *testing.M) {
	if role := os.Getenv("WORKSPACE_TEST_ROLE"); role != "" {
		if err := playRole(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func playRole(role string, args []string) error {
	h, err := Open(args[0])
	if err != nil {
		return err
	}
	switch role {
	case "open":
		return h.Close()
	case "die-bound":
		if _, err := h.Bind(contextForRole(), Binding{RunKey: "run", Node: "build", WorkflowID: "wf"}); err != nil {
			return err
		}
		os.Exit(0) // without closing, as a killed worker
	case "remove with few descriptors":
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4 * maxDepth, Max: 4 * maxDepth}); err != nil {
			return err
		}
		return h.Remove(contextForRole(), args[1])
	case "remove":
		return h.Remove(contextForRole(), args[1])
	}
	return fmt.Errorf("unknown role %q", role)
}
