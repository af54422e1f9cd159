package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// removeBound ends a removal whose context has no end of its own.
	removeBound = time.Minute
	// maxDepth is how deep a removal goes down, with an open directory for
	// each level; what lies deeper is moved up first.
	maxDepth = 32
	// readBatch is how many names are read at a time.
	readBatch = 512
	// maxReported bounds the errors of one removal.
	maxReported = 5

	retryFirst = 5 * time.Millisecond
	retryLast  = 500 * time.Millisecond
)

// MountedError says that something is mounted inside of what is to be removed.
// What is mounted was left alone, and so were the directories above it.
type MountedError struct {
	// Path is the mount point.
	Path string
}

// Error names the mount point and what to do.
func (e *MountedError) Error() string {
	return fmt.Sprintf("%q is a mount point: what is mounted there was left alone, unmount it (umount %q)", e.Path, e.Path)
}

// Remove removes path, which lies inside the state directory, and all below it,
// whatever steps have left there: links are removed and never followed,
// directories without permissions are opened first, any depth and any name will
// do, and what is mounted inside is left alone and reported as a
// [MountedError]. What is busy or still being written to is tried again until
// ctx ends, at most for a minute. It is done where nothing is there.
func (h *Host) Remove(ctx context.Context, path string) error {
	return h.clear(ctx, path, false)
}

// Empty removes all below the directory path as [Host.Remove] does, and keeps
// the directory.
func (h *Host) Empty(ctx context.Context, path string) error {
	return h.clear(ctx, path, true)
}

func (h *Host) clear(ctx context.Context, path string, keep bool) error {
	rel, err := filepath.Rel(h.dir, path)
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return fmt.Errorf("removing %q: it is not inside the state directory %s", path, h.dir)
	}
	return retryRemoval(ctx, func(ctx context.Context) error {
		return removeOnce(ctx, h.dir, rel, keep)
	})
}

// retryRemoval repeats a pass until it succeeds or meets what waiting will not
// change.
func retryRemoval(ctx context.Context, pass func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, removeBound)
		defer cancel()
	}
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		err := pass(ctx)
		if err == nil || !retryable(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// retryable reports whether a later pass may get further.
func retryable(err error) bool {
	if _, mounted := errors.AsType[*MountedError](err); mounted {
		return false
	}
	for _, transient := range []unix.Errno{
		unix.EBUSY, unix.ETXTBSY, unix.ENOTEMPTY, unix.EEXIST, unix.EMFILE, unix.ENFILE,
		unix.ENOTDIR, unix.ELOOP, // replaced while it was looked at
	} {
		if errors.Is(err, transient) {
			return true
		}
	}
	return false
}

// removal is one pass over a tree. It holds directories by descriptor and
// speaks of entries by name within them, so that a directory that is replaced
// by a link while it runs leads nowhere else.
type removal struct {
	ctx   context.Context //nolint:containedctx // lives for one call
	mount uint64          // the mount that the tree lies on
	top   *os.File        // the tree's own directory: where deep ones are moved up to
	moved int
	errs  []error
}

func removeOnce(ctx context.Context, base, rel string, keep bool) error {
	parent, err := openBeneath(base, filepath.Dir(rel))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %q: %w", filepath.Join(base, rel), err)
	}
	defer parent.Close() //nolint:errcheck // only read

	r := &removal{ctx: ctx}
	if r.mount, err = mountOf(parent); err != nil {
		return err
	}
	if keep {
		err = r.clearTop(parent, filepath.Base(rel))
	} else {
		r.entry(parent, filepath.Base(rel), 0)
	}
	return errors.Join(append(r.errs, err)...)
}

func (r *removal) clearTop(parent *os.File, name string) error {
	top, err := r.open(parent, name)
	if err != nil {
		return err
	}
	r.empty(top, 0)
	return top.Close()
}

// empty removes all entries of dir, going on past those it cannot remove.
func (r *removal) empty(dir *os.File, depth int) {
	for {
		before := len(r.errs)
		removed, err := 0, context.Cause(r.ctx)
		if err == nil {
			removed, err = r.sweep(dir, depth)
		}
		if err != nil {
			r.report(dir.Name(), err)
			return
		}
		// Reading while removing may skip names: only a pass that finds
		// nothing more to remove is the last.
		if removed == 0 || len(r.errs) > before {
			return
		}
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			r.report(dir.Name(), err)
			return
		}
	}
}

// sweep reads dir once to its end, removes what it names, and counts that.
func (r *removal) sweep(dir *os.File, depth int) (removed int, err error) {
	for {
		names, err := dir.Readdirnames(readBatch)
		for _, name := range names {
			if r.entry(dir, name, depth) {
				removed++
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return removed, nil
		case err != nil:
			return removed, err
		case r.ctx.Err() != nil:
			return removed, context.Cause(r.ctx)
		}
	}
}

// entry removes one entry of dir and reports whether it is gone from there.
func (r *removal) entry(dir *os.File, name string, depth int) bool {
	isDir, err := unlink(dir, name)
	if errors.Is(err, unix.EPERM) && !isDir && unprotect(dir, name) {
		isDir, err = unlink(dir, name)
	}
	switch {
	case isDir:
		err = r.subdir(dir, name, depth)
	case errors.Is(err, unix.EBUSY) && r.mountedAt(dir, name):
		err = &MountedError{Path: filepath.Join(dir.Name(), name)}
	}
	r.report(filepath.Join(dir.Name(), name), err)
	return err == nil
}

// subdir removes a directory: as it stands while it is empty, from inside while
// the tree is not too deep, and else by moving it up first.
func (r *removal) subdir(dir *os.File, name string, depth int) error {
	err := rmdir(dir, name)
	if err == nil || errors.Is(err, unix.EROFS) {
		return err
	}
	sub, err := r.open(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return errors.Join(sub.Close(), r.moveUp(dir, name))
	}
	if depth == 0 {
		r.top = sub
	}
	before := len(r.errs)
	r.empty(sub, depth+1)
	err = sub.Close()
	if len(r.errs) > before {
		return errReported // the reasons were reported
	}
	if err != nil {
		return err
	}
	return rmdir(dir, name)
}

// open opens a directory of the tree for reading and for changing, unless
// something is mounted on it.
func (r *removal) open(dir *os.File, name string) (*os.File, error) {
	sub, err := openDir(dir, name)
	if err != nil {
		return nil, err
	}
	mount, err := mountOf(sub)
	if err == nil && mount != r.mount {
		err = &MountedError{Path: sub.Name()}
	}
	if err == nil {
		err = permit(sub)
	}
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// errReported stops the removal of a directory whose content was not removed,
// for reasons that were reported already.
var errReported = errors.New("not empty")

// moveUp moves a directory to the top of the tree, where the pass over the top
// meets it again.
func (r *removal) moveUp(dir *os.File, name string) error {
	for {
		r.moved++
		to := ".deep-" + strconv.Itoa(r.moved)
		err := unix.Renameat(int(dir.Fd()), name, int(r.top.Fd()), to)
		// A step may have made an entry of that name.
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
	}
}

// report keeps an error with the path it happened at.
func (r *removal) report(path string, err error) {
	if err == nil || errors.Is(err, errReported) {
		return
	}
	if _, mounted := errors.AsType[*MountedError](err); !mounted {
		err = fmt.Errorf("removing %q: %w", path, err)
	}
	switch {
	case len(r.errs) < maxReported:
		r.errs = append(r.errs, err)
	case len(r.errs) == maxReported:
		r.errs = append(r.errs, errors.New("and more"))
	}
}
