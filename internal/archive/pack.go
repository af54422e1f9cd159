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
	"strings"
	"time"
)

// packedAt is the time that all packed files bear, so that the same tree gives
// the same bytes. It is not 1970, which some tools take for no time.
var packedAt = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// maxNotes is how many notes Stats keeps.
const maxNotes = 20

// Pack writes the folder dir to w as a tar.gz. The same tree gives the same
// bytes, whoever owns it and whenever it was written. Permissions and symbolic
// links are kept. A file that cannot be read is an error.
func Pack(ctx context.Context, w io.Writer, dir string, o Options) (Stats, error) {
	fail := func(err error) (Stats, error) { return Stats{}, fmt.Errorf("packing %s: %w", dir, err) }
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	p, err := newPacker(w, root, o)
	if err == nil {
		err = p.walk(ctx)
	}
	if err := errors.Join(err, root.Close()); err != nil {
		return fail(err)
	}
	return p.stats, nil
}

// packer is one call of Pack.
type packer struct {
	root    *os.Root
	include []pattern
	exclude []pattern
	found   []bool // by include
	limit   int64
	gzip    *gzip.Writer
	tar     *tar.Writer
	stats   Stats
	// dirs are the folders that are in the archive already.
	dirs map[string]bool
}

func newPacker(w io.Writer, root *os.Root, o Options) (*packer, error) {
	p := &packer{root: root, limit: o.Limit, dirs: map[string]bool{}, found: make([]bool, len(o.Include))}
	var err1, err2, err3 error
	p.include, err1 = compileAll(o.Include, false)
	p.exclude, err2 = compileAll(o.Exclude, true)
	// Sources and artifacts go over a network once or twice: fast beats small.
	p.gzip, err3 = gzip.NewWriterLevel(w, gzip.BestSpeed)
	p.tar = tar.NewWriter(p.gzip)
	return p, errors.Join(err1, err2, err3)
}

// walk packs what is asked for, in the order of names.
func (p *packer) walk(ctx context.Context) error {
	err := fs.WalkDir(p.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || name == "." {
			return err
		}
		return p.visit(ctx, name, d)
	})
	for i, found := range p.found {
		if !found && err == nil {
			err = fmt.Errorf("%q %w", p.include[i].text, ErrNoMatch)
		}
	}
	if err != nil {
		return err
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	return p.gzip.Close()
}

func (p *packer) visit(ctx context.Context, name string, d fs.DirEntry) error {
	names := strings.Split(name, "/")
	for _, pat := range p.exclude {
		if pat.matches(names, d.IsDir()) {
			return skip(d)
		}
	}
	wanted, within := p.wants(names, d.IsDir())
	switch {
	case wanted:
		return p.add(ctx, name)
	case d.IsDir() && within:
		return nil
	}
	return skip(d)
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// wants reports whether a path is included, by itself or with a folder it lies
// in, and whether something in it may be.
func (p *packer) wants(names []string, dir bool) (wanted, within bool) {
	if len(p.include) == 0 {
		return true, true
	}
	for i, pat := range p.include {
		for n := len(names); n > 0 || n == 0 && len(pat.names) == 0; n-- {
			if pat.matches(names[:n], dir || n < len(names)) {
				wanted = true
				p.found[i] = true
				break
			}
		}
		within = within || pat.mayMatchIn(names)
	}
	return wanted, within
}

// add packs one file, and the folders it lies in before it.
func (p *packer) add(ctx context.Context, name string) error {
	if parent := path.Dir(name); parent != "." && !p.dirs[parent] {
		if err := p.add(ctx, parent); err != nil {
			return err
		}
	}
	info, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Name: name, Mode: int64(info.Mode().Perm()), ModTime: packedAt, Format: tar.FormatPAX, Typeflag: tar.TypeReg,
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		p.dirs[name] = true
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return p.header(header)
	case mode.IsRegular():
		return p.file(ctx, header, info.Size())
	case mode.Type() == fs.ModeSymlink:
		return p.link(header)
	default:
		p.note(name + ": " + kindOf(mode) + " cannot be packed")
		return nil
	}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func (p *packer) header(h *tar.Header) error {
	p.stats.Files++
	return p.tar.WriteHeader(h)
}

func (p *packer) link(h *tar.Header) error {
	target, err := p.root.Readlink(h.Name)
	if err != nil {
		return err
	}
	if !staysInside(h.Name, target) {
		p.note(fmt.Sprintf("%s: it links to %s, which is outside of the folder", h.Name, target))
		return nil
	}
	h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
	return p.header(h)
}

func (p *packer) file(ctx context.Context, h *tar.Header, size int64) (err error) {
	p.stats.Bytes += size
	if p.limit > 0 && p.stats.Bytes > p.limit {
		return fmt.Errorf("%w of %d bytes at %s, which has %d: exclude what is not needed", ErrTooLarge, p.limit, h.Name, size)
	}
	f, err := p.root.Open(h.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h.Size = size
	if err := p.header(h); err != nil {
		return err
	}
	n, err := io.CopyN(p.tar, cancellable{ctx, f}, size)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s: became shorter, %d of %d bytes, while it was packed", h.Name, n, size)
	}
	return err
}

func (p *packer) note(text string) {
	switch n := len(p.stats.Notes); {
	case n < maxNotes:
		p.stats.Notes = append(p.stats.Notes, text)
	case n == maxNotes:
		p.stats.Notes = append(p.stats.Notes, "and more")
	}
}

// staysInside reports whether a symbolic link at name leads to somewhere in the
// folder that name is relative to. It must do so by its looks: up first, then
// down, since a way up later could start behind another link.
func staysInside(name, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if down {
				return false
			}
			up++
		default:
			down = true
		}
	}
	return up <= strings.Count(name, "/")
}
