package proc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"belay.run/internal/proc/supervisor"
	"belay.run/internal/proc/supervisor/tree"
)

const (
	// maxIdle is how many supervisors wait for their next step. One that is
	// used again saves its start, ten milliseconds in a large executable.
	maxIdle = 4
	// idleBound is how long one waits.
	idleBound = 30 * time.Second
	// answerBound is how long an idle one may take to answer; it takes a
	// fraction of a millisecond.
	answerBound = 2 * time.Second
)

// keeper is a supervisor as the worker holds it. It has one step at a time, and
// the next only when it has proved that nothing of the last one is left.
type keeper struct {
	cmd     *exec.Cmd
	start   uint64 // of the process, in ticks since boot
	control *net.UnixConn
	report  *os.File
	reports *bufio.Scanner
	retire  *time.Timer // while it is idle
}

// keeper returns a supervisor that waits for a job. h.forking is held.
func (h *Host) keeper() (*keeper, error) {
	for {
		k := h.takeIdle()
		if k == nil {
			break
		}
		if k.answers() {
			return k, nil
		}
		k.kill() // somebody killed or stopped it
		h.letGo(k)
	}
	k, err := startKeeper()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keepers[k] = struct{}{}
	return k, nil
}

func (h *Host) takeIdle() *keeper {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.idle) == 0 {
		return nil
	}
	k := h.idle[len(h.idle)-1]
	h.idle = h.idle[:len(h.idle)-1]
	k.retire.Stop()
	return k
}

// giveBack keeps a supervisor for the next step, or lets it go where enough
// wait already.
func (h *Host) giveBack(k *keeper) {
	h.mu.Lock()
	keep := len(h.idle) < maxIdle && !h.closed
	if keep {
		h.idle = append(h.idle, k)
		k.retire = time.AfterFunc(idleBound, func() { h.retire(k) })
	}
	h.mu.Unlock()
	if !keep {
		h.letGo(k)
	}
}

// retire lets an idle supervisor go, unless it has just been taken.
func (h *Host) retire(k *keeper) {
	h.mu.Lock()
	i := slices.Index(h.idle, k)
	if i >= 0 {
		h.idle = slices.Delete(h.idle, i, i+1)
	}
	h.mu.Unlock()
	if i >= 0 {
		h.letGo(k)
	}
}

// letGo ends a supervisor that has no step.
func (h *Host) letGo(k *keeper) {
	k.dismiss()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.keepers, k)
}

// startKeeper runs this executable again as a supervisor.
func startKeeper() (*keeper, error) {
	control, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // the supervisor has its own
	report, reportWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer func() { _ = reportWrite.Close() }() // the supervisor has its own
	k := &keeper{control: control, report: report, reports: bufio.NewScanner(report)}
	k.cmd = &exec.Cmd{
		Path: selfExe, Args: []string{supervisor.Name},
		// Little memory and few threads; nothing of the worker's environment.
		Env:        []string{"GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=2", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"},
		ExtraFiles: []*os.File{theirs, reportWrite}, // supervisor.ControlFD, ReportFD
		// A session of its own: a signal to the worker's group or terminal
		// reaches neither it nor the step.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := k.cmd.Start(); err != nil {
		return nil, errors.Join(err, control.Close(), report.Close())
	}
	if stat, err := tree.ReadStat(k.cmd.Process.Pid); err == nil {
		k.start = stat.Start // else it has ended, as its first job will show
	}
	return k, nil
}

// socketPair is the line to a supervisor: unlike a pipe it carries descriptors.
func socketPair() (*net.UnixConn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer func() { _ = ours.Close() }() // FileConn has a copy
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	line, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.Join(fmt.Errorf("a Unix socket is a %T", conn), conn.Close(), theirs.Close())
	}
	return line, theirs, nil
}

// pid is the process id of the supervisor.
func (k *keeper) pid() int { return k.cmd.Process.Pid }

// answers says whether an idle supervisor lives and is not stopped. A job that
// is given to one that is dead might have begun.
func (k *keeper) answers() bool {
	k.setDeadlines(time.Now().Add(answerBound))
	defer k.setDeadlines(time.Time{})
	if _, err := k.control.Write([]byte{supervisor.Ask}); err != nil {
		return false
	}
	report, err := k.next()
	return err == nil && report.Stage == supervisor.Waiting
}

// next reads one report.
func (k *keeper) next() (supervisor.Report, error) {
	if !k.reports.Scan() {
		err := k.reports.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return supervisor.Report{}, fmt.Errorf("reading from the supervisor: %w", err)
	}
	return supervisor.ParseReport(k.reports.Text())
}

// assign hands over a job and the ends of its output.
func (k *keeper) assign(frame []byte, ends [2]*os.File) error {
	rights := unix.UnixRights(int(ends[0].Fd()), int(ends[1].Fd()))
	if _, _, err := k.control.WriteMsgUnix([]byte{supervisor.Assign}, rights, nil); err != nil {
		return fmt.Errorf("handing the output to the supervisor: %w", err)
	}
	if _, err := k.control.Write(frame); err != nil {
		return fmt.Errorf("handing the job to the supervisor: %w", err)
	}
	return nil
}

// send gives an order. A supervisor that is dead reads nothing, and its end is
// noticed elsewhere.
func (k *keeper) send(order byte) {
	_ = k.control.SetWriteDeadline(time.Now().Add(keepAliveBound))
	_, _ = k.control.Write([]byte{order})
}

// setDeadlines bounds the talk with the supervisor.
func (k *keeper) setDeadlines(t time.Time) {
	_ = k.control.SetWriteDeadline(t) // fails on what is closed, which needs none
	_ = k.report.SetReadDeadline(t)
}

// kill ends the supervisor; its step, if it has one, is not ended by that.
func (k *keeper) kill() {
	_ = k.cmd.Process.Kill() // it may have ended
}

// dismiss ends a supervisor that has no step, and waits for that. It ends by
// itself when the line is closed.
func (k *keeper) dismiss() {
	k.hangUp()
	last := time.AfterFunc(supervisorSlack, k.kill)
	defer last.Stop()
	_ = k.cmd.Wait() // how it ended does not matter
}

// hangUp closes the worker's ends.
func (k *keeper) hangUp() {
	_ = k.control.Close() // the other ends may be gone
	_ = k.report.Close()
}
