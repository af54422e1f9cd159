package proc

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/proc/supervisor"
	"belay.run/internal/proc/supervisor/tree"
)

const (
	// supervisorSlack is how much later than agreed a supervisor may act
	// before the worker acts itself.
	supervisorSlack = 2 * time.Second
	// killBoundDefault is how long SIGKILL is tried: who is not gone by then
	// hangs in the kernel, or belongs to a user whom the worker may not signal.
	killBoundDefault = 10 * time.Second
	// keepAliveBound is how long a sign of life may wait for a supervisor that
	// reads nothing.
	keepAliveBound = time.Second
)

// Process is a step that was started. Its methods are safe for concurrent use,
// and do nothing once it has ended.
type Process struct {
	host   *Host
	job    Job
	name   string // of its record and its cgroup
	record record
	cgroup tree.Cgroup // "" where there is none
	pipes  *plumbing

	keeper *keeper // the supervisor
	pid    int

	kept         controllers   // the limits that the kernel keeps
	waitedBefore time.Duration // what the supervisor had waited for before this step

	mu      sync.Mutex // guards writes to control, and what follows
	started bool
	ended   bool        // the supervisor has nothing to do with it any more
	ordered byte        // the strongest order given
	giveUp  *time.Timer // ends the step without its supervisor
	excess  *Excess     // the limit that it went over

	done   chan struct{} // closed when result and err are set
	result Result
	err    error
}

// PID is the process id of the step's main process.
func (p *Process) PID() int { return p.pid }

// KeepAlive sets the dead-man timer back.
func (p *Process) KeepAlive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(supervisor.KeepAlive)
}

// Terminate sends SIGTERM to the whole tree, and SIGKILL to what is left of it
// after the grace period. It does not wait.
func (p *Process) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ordered == 0 {
		p.order(supervisor.Terminate, p.job.Grace+supervisorSlack)
	}
}

// Kill sends SIGKILL to the whole tree, also within the grace period of
// Terminate. It does not wait.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ordered != supervisor.Kill {
		p.order(supervisor.Kill, supervisorSlack)
	}
}

// Wait waits for the end of the process and of all that it started, and until
// its output has reached its writers. After Terminate or Kill, or once the main
// process has ended, that time is bounded. The error says that output was lost;
// the result is right all the same.
func (p *Process) Wait() (Result, error) {
	<-p.done
	return p.result, p.err
}

// order tells the supervisor to end the step. One that was stopped is woken;
// one that does nothing for too long is done without. p.mu is held.
func (p *Process) order(what byte, bound time.Duration) {
	if p.ended {
		return
	}
	p.ordered = what
	if !p.started { // the supervisor has no job yet, or has just begun
		p.keeper.kill()
		return
	}
	p.send(what)
	_ = p.keeper.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	p.giveUpAfter(bound)
}

// send gives the supervisor an order. p.mu is held.
func (p *Process) send(order byte) {
	if !p.ended {
		p.keeper.send(order)
	}
}

// giveUpAfter sets when the supervisor is killed if it has not reported by
// then; what it leaves is ended by takeOver. p.mu is held.
func (p *Process) giveUpAfter(d time.Duration) {
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.giveUp = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.ended { // else it may have another step by now
			p.keeper.kill()
		}
	})
}

// watch follows the step to its end and makes the result.
func (p *Process) watch() {
	report, err := p.await()
	p.mu.Lock()
	p.ended = true
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.mu.Unlock()
	if err == nil {
		p.result = p.reported(report.Outcome)
	} else {
		p.keeper.kill() // a pipe that closed, or nonsense: it is of no use
		p.host.letGo(p.keeper)
		p.result = p.lost(err)
	}
	if !p.result.Gone {
		p.host.log.Error("a step could not be proved gone", zap.String("node", p.job.Node), zap.String("note", p.result.GoneNote))
	}
	switch {
	case err != nil: // let go already
	case report.Value == supervisor.Free:
		p.host.giveBack(p.keeper)
	default:
		p.host.letGo(p.keeper)
	}
	p.err = p.pipes.drain(p.job.PipeDelay, writerBound)
	close(p.done)
	p.host.remove(p)
	if err == nil {
		p.host.reapNowAndThen()
	}
}

// await reads reports until the last.
func (p *Process) await() (supervisor.Report, error) {
	for {
		report, err := p.keeper.next()
		if err != nil {
			return supervisor.Report{}, err
		}
		switch report.Stage {
		case supervisor.Ended:
			return report, nil
		case supervisor.Killing:
			p.mu.Lock()
			p.giveUpAfter(p.host.killBound + supervisorSlack)
			p.mu.Unlock()
		default:
			return supervisor.Report{}, supervisor.ErrReport
		}
	}
}

// reported is the result of a step whose supervisor lived to tell.
func (p *Process) reported(o supervisor.Outcome) Result {
	r := Result{
		ExitCode: o.Code, CPU: o.User + o.System, MaxRSS: o.MaxRSS,
		Leftover: o.Leftover, Terminated: o.Terminated, DeadMan: o.DeadMan, Gone: o.Survivors == 0,
	}
	if o.Signal != 0 {
		r.Signal = signalName(o.Signal)
	}
	r.Excess = p.excessOf(r)
	if !r.Gone {
		r.GoneNote = fmt.Sprintf("%d processes did not end within %v of SIGKILL", o.Survivors, p.host.killBound)
	}
	return r
}

// lost is the result of a step that lost its supervisor.
func (p *Process) lost(err error) Result {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		p.host.log.Error("a supervisor made no sense", zap.String("node", p.job.Node), zap.Error(err))
	}
	end := p.takeOver()
	r := Result{
		ExitCode: -1, SupervisorLost: true, Terminated: p.ordered != 0,
		CPU: end.cpu, MaxRSS: end.memory, Leftover: end.killed, Gone: end.gone, GoneNote: end.note,
	}
	r.Excess = p.excessOf(r)
	return r
}
