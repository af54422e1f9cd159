package redisd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	pollInterval = 5 * time.Millisecond
	stopTimeout  = 10 * time.Second
	killTimeout  = time.Second
	tailSize     = 4 << 10
)

// process is a redis-server child, and what it starts in turn: the redis-server
// on the path may be a script that runs the real one.
type process struct {
	cmd    *exec.Cmd
	output tail
	pipe   *os.File      // where the output comes from
	exited chan struct{} // closed when it has ended
	err    error         // how it ended; read after exited
	quiet  chan struct{} // closed when nobody is left who could write output
}

// child starts redis-server and returns when it answers.
func child(ctx context.Context, program, addr, dir string) (*Server, error) {
	args, err := arguments(addr, dir)
	if err != nil {
		return nil, err
	}
	p := &process{
		cmd:    exec.Command(program, args...), //nolint:noctx // ended by stop, with time to write its state
		exited: make(chan struct{}), quiet: make(chan struct{}),
	}
	p.cmd.SysProcAttr = attributes()
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	if err := p.ready(ctx, addr); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s at %s: %w", program, addr, err), p.stop())
	}
	return &Server{URL: "redis://" + addr, Kind: Child, PID: p.cmd.Process.Pid, stop: sync.OnceValue(p.stop)}, nil
}

func arguments(addr, dir string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind", host, "--port", port, "--daemonize", "no", "--loglevel", "warning",
		"--maxmemory-policy", "noeviction", "--save", "",
	}
	if dir == "" {
		return append(args, "--appendonly", "no", "--dir", os.TempDir()), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of Redis: %w", err)
	}
	return append(args, "--appendonly", "yes", "--appendfsync", "everysec", "--dir", dir), nil
}

// start starts the process. It is waited for apart from its output, which a
// process that it leaves behind holds open.
func (p *process) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = errors.Join(p.fork(), w.Close())
	if err != nil {
		return errors.Join(err, r.Close())
	}
	p.pipe = r
	go func() {
		defer close(p.quiet)
		_, _ = io.Copy(&p.output, r) // until nobody writes, or stop has given up
	}()
	return nil
}

// fork starts it from a thread that stays for as long as it lives: the signal at
// the parent's death (see attributes) is really one at the death of the thread
// that forked.
func (p *process) fork() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	return <-started
}

// ready waits until the server answers.
func (p *process) ready(ctx context.Context, addr string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := answers(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended (%w) and said: %s", p.err, p.output.String())
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// answers asks without a client library, which would retry on its own terms
// and complain.
func answers(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // only asked whether it answers
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	const question, answer = "PING\r\n", "+PONG\r\n"
	if _, err := io.WriteString(conn, question); err != nil {
		return err
	}
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != answer { // it loads its state still
		return fmt.Errorf("answered %q", got)
	}
	return nil
}

// stop ends the server with all it started, with time to write its state.
func (p *process) stop() error {
	defer p.pipe.Close() //nolint:errcheck // only read from
	if p.ended(0) {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping redis-server: %w", err)
	}
	if p.ended(stopTimeout) {
		return nil
	}
	err := errors.New("redis-server did not stop within 10 seconds and was killed")
	if kill := p.signal(syscall.SIGKILL); kill != nil {
		return errors.Join(err, kill)
	}
	p.ended(killTimeout) // what is left then has gone where no signal of ours reaches it
	return err
}

// signal signals the whole group of the process.
func (p *process) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// ended waits, no longer than that, until the process and what it started are
// gone.
func (p *process) ended(within time.Duration) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	for _, c := range []chan struct{}{p.exited, p.quiet} {
		select {
		case <-c:
			continue
		default:
		}
		select {
		case <-c:
		case <-late.C:
			return false
		}
	}
	return true
}

// tail keeps the end of what a process writes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
