package proc

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pid1Bound is how long pid 1 outlives the worker, so that the supervisors of a
// worker that was killed can give their steps the grace period.
const pid1Bound = 15 * time.Second

// RunAsPID1 does what the first process of a container must, if this is it: it
// runs this program again as its child, passes signals on to it, reaps every
// orphan, and returns with the child's exit code (128 + n for signal n) and
// true. In any other process it returns false at once. The main function calls
// it before all else, so that the same program needs no init in its container:
// a program that is pid 1 itself could not reap orphans without taking the
// children of os/exec from it.
func RunAsPID1() (exitCode int, handled bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	// Before the child is started: a signal that comes first is passed on late
	// rather than lost.
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	err := Harden() // it has the worker's environment
	var child int
	if err == nil {
		child, err = startSelf()
	}
	if err != nil {
		_, _ = os.Stderr.WriteString("belay: pid 1 cannot start itself again: " + err.Error() + "\n")
		return 1, true
	}
	ended := make(chan unix.WaitStatus, 1)
	empty := make(chan struct{})
	go reapAsPID1(child, ended, empty)
	status := forward(child, signals, ended)
	awaitOrphans(signals, empty)
	if status.Signaled() {
		return 128 + int(status.Signal()), true
	}
	return status.ExitStatus(), true
}

// startSelf starts this program again with the same arguments. It gets a
// process group of its own, in the foreground of the terminal if there is one,
// so that Ctrl-C reaches it once and not also by way of pid 1.
func startSelf() (pid int, err error) {
	attr := &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setpgid: true},
	}
	if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	return syscall.ForkExec(selfExe, os.Args, attr)
}

// reapAsPID1 reaps whatever ends until nothing is left.
func reapAsPID1(child int, ended chan<- unix.WaitStatus, empty chan<- struct{}) {
	defer close(empty)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return
		case err == nil && pid == child:
			ended <- status
		}
	}
}

// forward passes signals on to the child until it ends.
func forward(child int, signals <-chan os.Signal, ended <-chan unix.WaitStatus) unix.WaitStatus {
	for {
		select {
		case status := <-ended:
			return status
		case s := <-signals:
			sig, ok := s.(syscall.Signal)
			switch sig {
			case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, unix.SIGTSTP:
				// Its own: children, the runtime's preemption, the terminal.
			default:
				if ok {
					_ = unix.Kill(child, sig) // it may have ended
				}
			}
		}
	}
}

// awaitOrphans waits for what the child left, until it is asked to stop.
func awaitOrphans(signals <-chan os.Signal, empty <-chan struct{}) {
	timeout := time.NewTimer(pid1Bound)
	defer timeout.Stop()
	for {
		select {
		case <-empty:
			return
		case <-timeout.C:
			return
		case s := <-signals:
			if s == unix.SIGTERM || s == unix.SIGINT || s == unix.SIGQUIT {
				return
			}
		}
	}
}
