package vitals

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DiskAt measures the file system that holds a path.
func DiskAt(what, path string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Disk{}, fmt.Errorf("measuring the disk of %s: %w", path, err)
	}
	size := uint64(st.Bsize)
	return Disk{
		What: what, Path: path, Bytes: st.Blocks * size, Free: st.Bavail * size, Files: st.Files, FreeFiles: st.Ffree,
	}, nil
}

// OpenFiles is how many files this process may have open, zero where the system
// does not say.
func OpenFiles() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0 // a report without it is worth having
	}
	return limit.Cur
}
