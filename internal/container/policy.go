package container

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Allows says what of these the host's policy does not allow.
func (h *Host) Allows(mounts []Mount, privileged bool) error {
	if privileged && !h.opts.Policy.Privileged {
		return errors.New("privileged: this worker allows no such container (container_privileged)")
	}
	for _, m := range mounts {
		if !h.opts.Policy.allows(m.Source) {
			return fmt.Errorf("mounts: this worker does not allow to mount %s (container_mounts)", m.Source)
		}
	}
	return nil
}

// allows reports whether a folder is one of those that may be mounted, or lies
// below one, also when the links in its path are followed.
func (p Policy) allows(folder string) bool {
	followed, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	for _, root := range p.Mounts {
		followedRoot, err := filepath.EvalSymlinks(root)
		if err == nil && below(folder, root) && below(followed, followedRoot) {
			return true
		}
	}
	return false
}

func below(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
