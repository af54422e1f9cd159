package supervisor

import "syscall"

// resetSignals lets the step begin as from a login shell: nothing is ignored
// or held back because the worker, or what started it, ignored it.
//
// What Go handles needs nothing, since Go resets it in the child. This goes
// around package os/signal: a signal ignored by it would be ignored in the step,
// whose own traps would then never run.
func resetSignals() {
	unblockSignals() // of this thread, to which init is locked, and which forks
	for sig := uintptr(1); sig <= lastSignal; sig++ {
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
