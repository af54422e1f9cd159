package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// portStale is how old the file of a port must be before it is taken from one
// whose worker is gone and never came back to give it back itself.
const portStale = 10 * time.Minute

// Ports hands out TCP and UDP ports of this machine. No two holders share one,
// whichever worker they belong to: each port is a file in a directory that all
// workers of the machine share, locked by the worker that handed it out.
type Ports struct {
	dir       string
	low, high int
	boot      string

	mu   sync.Mutex
	held map[string]*os.File // by holder
}

var _ Kind = (*Ports)(nil)

// portFile is what the file of a port says.
type portFile struct {
	Holder string `json:"holder"`
	Boot   string `json:"boot"`
}

// NewPorts hands out the ports from low to high. Dir is made where it is not
// there; boot names the boot of the machine, which no port outlives.
func NewPorts(dir string, low, high int, boot string) *Ports {
	return &Ports{dir: dir, low: low, high: high, boot: boot, held: map[string]*os.File{}}
}

// Name is the kind's.
func (p *Ports) Name() string { return KindPort }

// Acquire takes a port that nobody holds and nothing listens on.
func (p *Ports) Acquire(ctx context.Context, e *Entry, _ Ask) (Grant, error) {
	if err := p.makeDir(); err != nil {
		return Grant{}, err
	}
	n := p.high - p.low + 1
	first := rand.IntN(n) //nolint:gosec // spreads ports, hides nothing
	for i := range n {
		if ctx.Err() != nil {
			return Grant{}, context.Cause(ctx)
		}
		port := p.low + (first+i)%n
		f, err := p.take(port, e.Holder())
		if err != nil {
			return Grant{}, err
		}
		if f == nil {
			continue
		}
		if !free(ctx, port) {
			if err := errors.Join(os.Remove(f.Name()), f.Close()); err != nil {
				return Grant{}, fmt.Errorf("leaving port %d, on which something listens: %w", port, err)
			}
			continue
		}
		p.mu.Lock()
		p.held[e.Holder()] = f
		p.mu.Unlock()
		e.ID = strconv.Itoa(port)
		return Grant{Env: map[string]string{EnvPort + EnvName(e.Name): e.ID}}, nil
	}
	return Grant{}, fmt.Errorf("a port from %d to %d %w: all are held or listened on", p.low, p.high, ErrUnavailable)
}

// makeDir makes the directory that all workers share, of whatever users. A link
// in its place would lead elsewhere.
func (p *Ports) makeDir() error {
	const shared = 0o777 | fs.ModeSticky
	if err := os.Mkdir(p.dir, shared.Perm()); err == nil {
		if err := os.Chmod(p.dir, shared); err != nil {
			return fmt.Errorf("opening the directory of ports to other workers: %w", err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory of ports: %w", err)
	}
	info, err := os.Lstat(p.dir)
	if err != nil {
		return fmt.Errorf("looking at the directory of ports: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not the directory of ports but %s: move it away", p.dir, info.Mode().Type())
	}
	return nil
}

func (p *Ports) file(port int) string { return filepath.Join(p.dir, strconv.Itoa(port)) }

// take makes the file of a port and locks it; nil where another has it.
func (p *Ports) take(port int, holder string) (*os.File, error) {
	f, err := p.open(port, os.O_CREATE)
	if f == nil || err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("looking at port %d: %w", port, err), f.Close())
	}
	if was, given := readPort(f); given && was.Holder != holder && was.Boot == p.boot && time.Since(info.ModTime()) < portStale {
		return nil, f.Close() // its worker is gone; what it ran may be ending
	}
	text, err := json.Marshal(portFile{Holder: holder, Boot: p.boot})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taking port %d: %w", port, err), f.Close())
	}
	return f, nil
}

// open opens the file of a port and locks it; nil where another has it locked,
// it belongs to another user, or it is not there.
func (p *Ports) open(port, flags int) (*os.File, error) {
	const mode = 0o600
	f, err := os.OpenFile(p.file(port), os.O_RDWR|unix.O_NOFOLLOW|flags, mode)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // not to be had
	}
	if err != nil {
		return nil, fmt.Errorf("opening the file of port %d: %w", port, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = nil
		}
		return nil, errors.Join(err, f.Close())
	}
	// Between the two it may have been removed: the lock is on nothing then.
	mine, err1 := f.Stat()
	now, err2 := os.Lstat(f.Name())
	if err1 != nil || err2 != nil || !os.SameFile(mine, now) {
		return nil, f.Close()
	}
	return f, nil
}

func readPort(f *os.File) (portFile, bool) {
	var was portFile
	const most = 64 << 10
	text, err := io.ReadAll(io.NewSectionReader(f, 0, most))
	return was, err == nil && json.Unmarshal(text, &was) == nil
}

// free reports whether nothing listens on a port, of any address.
func free(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	addr := ":" + strconv.Itoa(port)
	tcp, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	udp, err := lc.ListenPacket(ctx, "udp", addr)
	if err == nil {
		err = udp.Close()
	}
	return errors.Join(err, tcp.Close()) == nil
}

// Release removes the file of the port.
func (p *Ports) Release(_ context.Context, e *Entry) error {
	p.mu.Lock()
	f := p.held[e.Holder()]
	delete(p.held, e.Holder())
	p.mu.Unlock()
	if f == nil { // acquired by an earlier worker of this host, or never
		port, err := strconv.Atoi(e.ID)
		if err != nil {
			return p.releaseUnknown(e.Holder())
		}
		f, err = p.left(port, e.Holder())
		if f == nil || err != nil {
			return err
		}
	}
	if err := errors.Join(os.Remove(f.Name()), f.Close()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving a port back: %w", err)
	}
	return nil
}

// left opens the file of a port where it is still that of the holder.
func (p *Ports) left(port int, holder string) (*os.File, error) {
	f, err := p.open(port, 0)
	if f == nil || err != nil {
		return nil, err
	}
	if was, _ := readPort(f); was.Holder != holder {
		return nil, f.Close()
	}
	return f, nil
}

// releaseUnknown looks through all ports for those of a holder that was stopped
// before it could say which one it had.
func (p *Ports) releaseUnknown(holder string) error {
	names, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking through the directory of ports: %w", err)
	}
	var errs []error
	for _, n := range names {
		port, err := strconv.Atoi(n.Name())
		if err != nil {
			continue // not ours
		}
		f, err := p.left(port, holder)
		errs = append(errs, err)
		if f != nil {
			errs = append(errs, os.Remove(f.Name()), f.Close())
		}
	}
	return errors.Join(errs...)
}
