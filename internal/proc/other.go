//go:build unix && !linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// groupNote is why nothing is proved gone on this system.
const groupNote = "on this system a step is a process group; processes that left it are not ended"

// Host runs steps on this machine. It is safe for concurrent use.
type Host struct {
	log *zap.Logger
	id  string

	mu      sync.Mutex
	running map[*Process]struct{}
}

// New prepares this process to run steps.
func New(o Options) (*Host, error) {
	if o.StateDir == "" {
		return nil, errors.New("running steps: no state directory is given")
	}
	if o.CgroupRoot != "" {
		return nil, errors.New("running steps: this system has no cgroups")
	}
	state, err := filepath.Abs(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	h := &Host{log: o.Log, id: nodeHash(state), running: map[*Process]struct{}{}}
	if h.log == nil {
		h.log = zap.NewNop()
	}
	return h, nil
}

// Cgroup is the cgroup below which the steps have theirs: none here.
func (h *Host) Cgroup() (dir, why string) { return "", groupNote }

// Close ends all steps that still run, without grace.
func (h *Host) Close() error {
	for _, p := range h.processes(func(string) bool { return true }) {
		p.Kill()
		<-p.done
	}
	return nil
}

// EndNode ends the steps of this process of a node and of all nodes below it.
func (h *Host) EndNode(ctx context.Context, node string) error {
	if node == "" {
		return errors.New("ending a node: no node is given")
	}
	own := h.processes(func(n string) bool { return within(n, node) })
	for _, p := range own {
		p.Terminate()
	}
	for _, p := range own {
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("ending what is left of %s: %w", node, context.Cause(ctx))
		}
	}
	return nil
}

// Sweep finds nothing on this system: what earlier workers left is not known.
func (h *Host) Sweep(context.Context, func(node string) bool) (int, error) { return 0, nil }

func (h *Host) processes(wanted func(node string) bool) []*Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*Process
	for p := range h.running {
		if wanted(p.job.Node) {
			found = append(found, p)
		}
	}
	return found
}

// Start starts a job. When it returns without an error the job's program runs.
// What is wrong with the job is a [StartError].
func (h *Host) Start(ctx context.Context, job Job) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	program, err := job.check()
	if err != nil {
		return nil, err
	}
	if job.PipeDelay == 0 {
		job.PipeDelay = PipeDelayDefault
	}
	pipes, err := plumb(job.Stdout, job.Stderr)
	if err != nil {
		return nil, err
	}
	defer pipes.closeEnds()
	p := &Process{host: h, job: job, pipes: pipes, done: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: program, Args: job.Argv, Dir: job.Dir, Env: stepEnv(job.Env, job.Node, h.id),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if out := pipes.ends[0]; out != nil {
		p.cmd.Stdout = out
	}
	if out := pipes.ends[1]; out != nil {
		p.cmd.Stderr = out
	}
	if err := p.cmd.Start(); err != nil {
		pipes.discard()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return nil, execError(job, program, errno)
		}
		return nil, startError(ErrNotExecutable, err, "%q could not be executed: %v", program, err)
	}
	h.mu.Lock()
	h.running[p] = struct{}{}
	h.mu.Unlock()
	p.KeepAlive()
	pipes.carry()
	go p.watch()
	return p, nil
}

// Process is a step that was started. Its methods are safe for concurrent use.
type Process struct {
	host  *Host
	job   Job
	pipes *plumbing
	cmd   *exec.Cmd

	mu         sync.Mutex
	ended      bool
	terminated bool
	deadMan    bool
	grace      *time.Timer
	dead       *time.Timer

	done   chan struct{} // closed when result and err are set
	result Result
	err    error
}

// PID is the process id of the step's main process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// KeepAlive sets the dead-man timer back.
func (p *Process) KeepAlive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.job.DeadMan == 0 || p.ended || p.terminated:
	case p.dead == nil:
		p.dead = time.AfterFunc(p.job.DeadMan, p.miss)
	default:
		p.dead.Reset(p.job.DeadMan)
	}
}

func (p *Process) miss() {
	p.mu.Lock()
	p.deadMan = !p.ended && !p.terminated
	p.mu.Unlock()
	p.Terminate()
}

// Terminate sends SIGTERM to the process group, and SIGKILL after the grace
// period. It does not wait.
func (p *Process) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.terminated {
		return
	}
	p.terminated = true
	p.signal(unix.SIGTERM)
	p.grace = time.AfterFunc(p.job.Grace, p.Kill)
}

// Kill sends SIGKILL to the process group. It does not wait.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.terminated = true
		p.signal(unix.SIGKILL)
	}
}

// signal signals the group while its leader is not reaped. p.mu is held.
func (p *Process) signal(sig unix.Signal) {
	_ = unix.Kill(-p.cmd.Process.Pid, sig) // it may have ended
}

// Wait waits for the end of the process and until its output has reached its
// writers. The error says that output was lost.
func (p *Process) Wait() (Result, error) {
	<-p.done
	return p.result, p.err
}

// watch waits for the main process and ends what is left of its group.
func (p *Process) watch() {
	_ = p.cmd.Wait() // the state says more
	p.mu.Lock()
	p.ended = true
	p.signal(unix.SIGKILL)
	for _, t := range []*time.Timer{p.grace, p.dead} {
		if t != nil {
			t.Stop()
		}
	}
	state := p.cmd.ProcessState
	p.result = Result{
		ExitCode: state.ExitCode(), CPU: state.UserTime() + state.SystemTime(),
		Terminated: p.terminated, DeadMan: p.deadMan, GoneNote: groupNote,
	}
	p.mu.Unlock()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.result.Signal = signalName(int(status.Signal()))
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		p.result.MaxRSS = usage.Maxrss // in bytes on Darwin
	}
	p.result.Excess = p.job.Limits.after(p.result)
	p.err = p.pipes.drain(p.job.PipeDelay, writerBound)
	p.host.mu.Lock()
	delete(p.host.running, p)
	p.host.mu.Unlock()
	close(p.done)
}

// Harden does nothing on this system.
func Harden() error { return nil }

// RunAsPID1 returns false: only Linux has containers whose first process must
// reap.
func RunAsPID1() (exitCode int, handled bool) { return 0, false }
