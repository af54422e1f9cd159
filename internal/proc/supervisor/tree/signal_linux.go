package tree

import (
	"errors"
	"syscall"
	"time"
	"unsafe"
)

// The numbers are the same on every architecture that Go knows.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434
)

// Handle holds on to one process: its pid may be used again, the handle never
// means another.
type Handle struct{ fd int }

// Open takes hold of a process. It fails with ESRCH where there is none.
func Open(pid int) (Handle, error) {
	if pid <= 1 {
		return Handle{}, syscall.ESRCH
	}
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return Handle{}, errno
	}
	return Handle{fd: int(fd)}, nil
}

// Close lets go of the process.
func (h Handle) Close() {
	_ = syscall.Close(h.fd) // a pidfd has nothing to flush
}

// Signal sends a signal to exactly this process.
func (h Handle) Signal(sig syscall.Signal) error {
	_, _, errno := syscall.Syscall6(sysPidfdSendSignal, uintptr(h.fd), uintptr(sig), 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Wait waits until the process has ended, at most for d, and says whether it
// did. A zombie has ended.
func (h Handle) Wait(d time.Duration) bool {
	const pollIn = 1
	return poll(h.fd, pollIn, d)
}

// SignalIf sends a signal to a process for which the condition holds. The
// condition is asked when the process can no longer be mistaken for another
// that got its pid.
func SignalIf(pid int, sig syscall.Signal, condition func(Stat) bool) error {
	handle, err := Open(pid)
	switch {
	case err == nil:
		defer handle.Close()
	case !errors.Is(err, syscall.ENOSYS):
		return err
	}
	stat, statErr := ReadStat(pid)
	if statErr != nil || stat.Dead() || !condition(stat) {
		return syscall.ESRCH
	}
	if err != nil { // a kernel before 5.3
		return syscall.Kill(pid, sig)
	}
	return handle.Signal(sig)
}

// poll waits for an event on a descriptor, at most for d.
func poll(fd int, events int16, d time.Duration) bool {
	deadline := time.Now().Add(d)
	for {
		p := struct {
			fd              int32
			events, revents int16
		}{fd: int32(fd), events: events}
		timeout := syscall.NsecToTimespec(max(0, time.Until(deadline)).Nanoseconds())
		//nolint:gosec // the call takes pointers
		n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return errno == 0 && n > 0
	}
}
