package archive

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Defaults of Limits.
const (
	BytesDefault = 16 << 30
	FilesDefault = 1_000_000
)

// headerAllowance is how much of an archive may be other than the bytes of
// files, for each of them: headers, padding, long names.
const headerAllowance = 8 << 10

// Unpack writes what r holds into the folder dir, which is made where missing;
// files that are there already are replaced. Nothing is ever written through a
// symbolic link or outside of dir, and no link may point there. After an error
// a dir that was new or empty is empty again; in any other the error is
// ErrPartial too.
func Unpack(ctx context.Context, r io.Reader, dir string, l Limits) (Stats, error) {
	fail := func(err error) (Stats, error) { return Stats{}, fmt.Errorf("unpacking into %s: %w", dir, err) }
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the umask decides who may read it
		return fail(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	before, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fail(errors.Join(err, root.Close()))
	}
	u := newUnpacker(root, l)
	if err = u.all(ctx, r); err != nil {
		if len(before) > 0 {
			err = fmt.Errorf("%w; %w", err, ErrPartial)
		} else {
			err = errors.Join(err, empty(root))
		}
	}
	if err := errors.Join(err, root.Close()); err != nil {
		return fail(err)
	}
	return u.stats, nil
}

// empty removes all that is in a folder.
func empty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(e.Name()))
	}
	return err
}

// unpacker is one call of Unpack.
type unpacker struct {
	root   *os.Root
	limits Limits
	stats  Stats
	// dirs are the folders that are known to be folders, not links to them,
	// and the permissions they get when all is done.
	dirs map[string]fs.FileMode
}

func newUnpacker(root *os.Root, l Limits) *unpacker {
	if l.Bytes <= 0 {
		l.Bytes = BytesDefault
	}
	if l.Files <= 0 {
		l.Files = FilesDefault
	}
	return &unpacker{root: root, limits: l, dirs: map[string]fs.FileMode{}}
}

func (u *unpacker) all(ctx context.Context, r io.Reader) error {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	// Whatever the headers say, no more than this is ever unzipped.
	plain := &io.LimitedReader{R: zipped, N: u.limits.Bytes + int64(u.limits.Files+1)*headerAllowance}
	archive := tar.NewReader(plain)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if err := u.entry(ctx, h, archive); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
	// The rest holds the checksum.
	if _, err := io.Copy(io.Discard, plain); err != nil {
		return fmt.Errorf("reading the end of the archive: %w", err)
	}
	if plain.N == 0 {
		return fmt.Errorf("%w: there is more in the archive than its files", ErrTooLarge)
	}
	return u.finishDirs()
}

func (u *unpacker) entry(ctx context.Context, h *tar.Header, r io.Reader) error {
	u.stats.Files++
	if u.stats.Files > u.limits.Files {
		return fmt.Errorf("%w of %d files", ErrTooLarge, u.limits.Files)
	}
	name, err := safeName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	if err := u.parent(name); err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	switch h.Typeflag {
	case tar.TypeDir:
		return u.dir(name, mode)
	case tar.TypeReg:
		return u.file(ctx, name, mode, h.Size, r)
	case tar.TypeSymlink:
		return u.link(name, h.Linkname)
	}
	return fmt.Errorf("%w: an entry of type %q; only files, folders and symbolic links are unpacked", ErrUnsafe, h.Typeflag)
}

// safeName is the path of an entry in the folder.
func safeName(name string) (string, error) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("%w: not a name", ErrUnsafe)
	case path.IsAbs(name):
		return "", fmt.Errorf("%w: an absolute path", ErrUnsafe)
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "", fmt.Errorf("%w: a path with the name .. in it", ErrUnsafe)
	}
	return path.Clean(name), nil
}

// parent makes sure that what name lies in is a real folder.
func (u *unpacker) parent(name string) error {
	dir := path.Dir(name)
	if _, known := u.dirs[dir]; known || dir == "." {
		return nil
	}
	if err := u.parent(dir); err != nil {
		return err
	}
	return u.dir(dir, 0o755)
}

// dir makes a folder, which its owner can always read, write and enter: else
// nobody could fill it, or remove it later.
func (u *unpacker) dir(name string, mode fs.FileMode) error {
	mode |= 0o700
	if _, known := u.dirs[name]; !known {
		info, err := u.root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = u.root.Mkdir(name, 0o700)
		case err == nil && info.Mode().Type() == fs.ModeSymlink:
			err = fmt.Errorf("%w: %q is a symbolic link where the archive has a folder", ErrUnsafe, name)
		case err == nil && !info.IsDir():
			err = fmt.Errorf("%q is a file where the archive has a folder", name)
		}
		if err != nil {
			return err
		}
	}
	u.dirs[name] = mode
	return nil
}

// clear removes the file or link that an entry replaces.
func (u *unpacker) clear(name string) error {
	info, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%q is a folder where the archive has a file", name)
	}
	return u.root.Remove(name)
}

func (u *unpacker) file(ctx context.Context, name string, mode fs.FileMode, size int64, r io.Reader) (err error) {
	u.stats.Bytes += size
	if size < 0 || u.stats.Bytes > u.limits.Bytes {
		return fmt.Errorf("%w of %d bytes", ErrTooLarge, u.limits.Bytes)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, cancellable{ctx, io.LimitReader(r, size)}); err != nil {
		return err
	}
	return f.Chmod(mode)
}

// cancellable ends a copy when its context is over.
type cancellable struct {
	ctx context.Context //nolint:containedctx // lives as long as one copy
	r   io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

func (u *unpacker) link(name, target string) error {
	if !staysInside(name, target) {
		return fmt.Errorf("%w: a symbolic link to %q, which may lead out of the folder", ErrUnsafe, target)
	}
	if err := u.clear(name); err != nil {
		return err
	}
	return u.root.Symlink(target, name)
}

// finishDirs sets the permissions of folders, which may forbid to write in them.
func (u *unpacker) finishDirs() error {
	for name, mode := range u.dirs {
		if err := u.root.Chmod(name, mode); err != nil {
			return err
		}
	}
	return nil
}
