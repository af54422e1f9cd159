package supervisor

import (
	"syscall"
	"unsafe"
)

// sigaction is large enough for the kernel's struct on every architecture of
// which the handler is the first field; zeros are the default action.
type sigaction [8]uintptr

const (
	sigDefault = 0
	sigIgnore  = 1
	signals    = 64
	sigsetSize = 8
	sigSetmask = 2
)

// resetSignals lets the step begin as from a login shell: nothing is ignored
// or held back because the worker, or what started it, ignored it.
//
// What Go handles needs nothing, since Go resets it in the child. This goes
// around package os/signal: a signal ignored by it would be ignored in the step,
// whose own traps would then never run.
func resetSignals() {
	var none [sigsetSize]byte
	// The thread is locked to init's goroutine, which also forks.
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&none)), 0, sigsetSize, 0, 0)
	for sig := uintptr(1); sig <= signals; sig++ {
		if handler(sig) == sigIgnore {
			setHandler(sig, sigDefault)
		}
	}
}

// ignoreSignals keeps the supervisor alive when signals are sent to all that
// the worker started, as service managers do: it ends only with its step. Go's
// own record of handlers stays as it is, so nothing would be inherited.
func ignoreSignals() {
	for _, sig := range []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGTSTP,
	} {
		setHandler(uintptr(sig), sigIgnore)
	}
}

func handler(sig uintptr) uintptr {
	var action sigaction
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), sigsetSize, 0, 0)
	if errno != 0 {
		return sigDefault
	}
	return action[0]
}

// setHandler cannot fail: the signals are ones whose action may be changed.
func setHandler(sig, handler uintptr) {
	action := sigaction{handler}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
}
