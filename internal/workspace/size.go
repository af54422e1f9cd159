package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// blockSize is the unit in which the kernel counts what a file takes.
	blockSize = 512
	// maxPending bounds the directories that a measurement remembers to go into;
	// what lies in more is not counted.
	maxPending = 1 << 20
)

// Size is how many bytes of disk all below the directory path, inside the state
// directory, takes. It counts no further once it is at more than enough. A
// file with several names counts once; what is mounted inside does not count,
// and neither does what may not be read or goes away meanwhile. Links are not
// followed.
func (h *Host) Size(ctx context.Context, path string, enough int64) (int64, error) {
	rel, err := filepath.Rel(h.dir, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return 0, fmt.Errorf("measuring %q: it is not inside the state directory %s", path, h.dir)
	}
	top, err := openBeneath(h.dir, rel)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("measuring %q: %w", path, err)
	}
	m := &measure{enough: enough, seen: map[uint64]bool{}, pending: []string{"."}}
	if err := unix.Fstat(int(top.Fd()), &m.top); err != nil {
		return 0, errors.Join(fmt.Errorf("measuring %q: %w", path, err), top.Close())
	}
	for len(m.pending) > 0 && m.total <= enough {
		if err := context.Cause(ctx); err != nil {
			return m.total, errors.Join(fmt.Errorf("measuring %q: %w", path, err), top.Close())
		}
		next := m.pending[len(m.pending)-1]
		m.pending = m.pending[:len(m.pending)-1]
		m.directory(top, next)
	}
	return m.total, top.Close()
}

// measure is one look at a tree that others change meanwhile.
type measure struct {
	top           unix.Stat_t
	total, enough int64
	seen          map[uint64]bool // inodes with several names
	pending       []string        // directories, below the top
}

// directory counts what a directory holds and remembers those in it. The way
// there is gone name by name, so that a link put in the place of a directory
// leads nowhere.
func (m *measure) directory(top *os.File, rel string) {
	dir, err := descend(top, rel)
	if err != nil {
		return // it has gone, or may not be read
	}
	defer func() { _ = dir.Close() }() // opened to read
	for m.total <= m.enough {
		names, err := dir.Readdirnames(readBatch)
		for _, name := range names {
			m.entry(dir, rel, name)
		}
		if err != nil || len(names) == 0 { // the end, as a rule
			return
		}
	}
}

// entry counts one entry of a directory.
func (m *measure) entry(dir *os.File, rel, name string) {
	var st unix.Stat_t
	err := retryInterrupted(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil || st.Dev != m.top.Dev {
		return
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		if m.seen[st.Ino] {
			return
		}
		m.seen[st.Ino] = true
	}
	m.total += st.Blocks * blockSize
	if isDir && len(m.pending) < maxPending {
		m.pending = append(m.pending, filepath.Join(rel, name))
	}
}

// descend opens a directory below top to read it. Unlike [openBeneath] it opens
// nothing up: what is there is in use.
func descend(top *os.File, rel string) (*os.File, error) {
	fd, err := openat(top, ".", dirFlags)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), top.Name())
	if rel == "." {
		return dir, nil
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		fd, err := openat(dir, name, dirFlags)
		if err := errors.Join(err, dir.Close()); err != nil {
			return nil, err
		}
		dir = os.NewFile(uintptr(fd), name)
	}
	return dir, nil
}
