package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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

	cmd     *exec.Cmd // the supervisor
	control *os.File
	report  *os.File
	reports *bufio.Scanner
	pid     int

	mu      sync.Mutex // guards writes to control, and what follows
	started bool
	ended   bool        // the supervisor is gone
	ordered byte        // the strongest order given
	giveUp  *time.Timer // ends the step without its supervisor

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
		_ = p.cmd.Process.Kill() // it may have ended
		return
	}
	p.send(what)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have ended
	p.giveUpAfter(bound)
}

// send writes to the supervisor. One that is dead reads nothing, and its end is
// noticed elsewhere. p.mu is held.
func (p *Process) send(b byte) {
	if p.ended {
		return
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(keepAliveBound))
	_, _ = p.control.Write([]byte{b})
}

// giveUpAfter sets when the supervisor is killed if it has not reported by
// then; what it leaves is ended by takeOver. p.mu is held.
func (p *Process) giveUpAfter(d time.Duration) {
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.giveUp = time.AfterFunc(d, func() {
		_ = p.cmd.Process.Kill() // it may have ended
	})
}

// watch follows the step to its end and makes the result. It does not wait for
// the supervisor to end too, which has nothing more to do then.
func (p *Process) watch() {
	outcome, err := p.await()
	last := time.AfterFunc(supervisorSlack, func() { _ = p.cmd.Process.Kill() }) // it may have ended
	p.mu.Lock()
	p.ended = true
	if p.giveUp != nil {
		p.giveUp.Stop()
	}
	p.mu.Unlock()
	if err == nil {
		p.result = p.reported(outcome)
	} else {
		_ = p.cmd.Process.Kill() // a pipe that closed, or nonsense: it is of no use
		_ = p.cmd.Wait()         // its end is all that counts
		p.result = p.lost(err)
	}
	if !p.result.Gone {
		p.host.log.Error("a step could not be proved gone", zap.String("node", p.job.Node), zap.String("note", p.result.GoneNote))
	}
	p.err = p.pipes.drain(p.job.PipeDelay, writerBound)
	close(p.done)
	if err == nil {
		_ = p.cmd.Wait() // how it ended does not matter after its report
		p.host.reapNowAndThen()
	}
	last.Stop()
	p.forget()
}

// await reads reports until the last.
func (p *Process) await() (supervisor.Outcome, error) {
	for {
		report, err := p.nextReport()
		if err != nil {
			return supervisor.Outcome{}, err
		}
		switch report.Stage {
		case supervisor.Ended:
			return report.Outcome, nil
		case supervisor.Killing:
			p.mu.Lock()
			p.giveUpAfter(p.host.killBound + supervisorSlack)
			p.mu.Unlock()
		default:
			return supervisor.Outcome{}, supervisor.ErrReport
		}
	}
}

// nextReport reads one report of the supervisor.
func (p *Process) nextReport() (supervisor.Report, error) {
	if !p.reports.Scan() {
		err := p.reports.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return supervisor.Report{}, fmt.Errorf("reading from the supervisor: %w", err)
	}
	return supervisor.ParseReport(p.reports.Text())
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
	return Result{
		ExitCode: -1, SupervisorLost: true, Terminated: p.ordered != 0,
		CPU: end.cpu, MaxRSS: end.memory, Leftover: end.killed, Gone: end.gone, GoneNote: end.note,
	}
}
