//go:build unix && !linux && !darwin

package workspace

// bootID has no kernel to ask: every start of the worker counts as a boot.
func bootID() (string, error) {
	return "start-" + newID(), nil
}
