package supervisor

import (
	"syscall"
	"unsafe"
)

// System calls that package syscall has no function for; golang.org/x/sys is
// not of the standard library.

// Their arguments, as the kernel's headers have them.
const (
	prSetDumpable       = 4
	prSetName           = 15
	prSetChildSubreaper = 36
	sysCloseRange       = 436
	closeRangeCloexec   = 4
	waitAll             = 0          // P_ALL
	wall                = 0x40000000 // __WALL: also children that clone(2) made without SIGCHLD
	sigDefault          = 0
	sigIgnore           = 1
	sigSetmask          = 2
	sigsetSize          = 8
	lastSignal          = 64
)

// sigaction is large enough for the kernel's struct on every architecture on
// which the handler is the first field; zeros are the default action.
type sigaction [8]uintptr

func prctl(option, arg uintptr) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// setName sets what ps shows.
func setName(name string) error {
	b := append([]byte(name), 0)
	return prctl(prSetName, uintptr(unsafe.Pointer(&b[0]))) //nolint:gosec // the call takes a pointer
}

// closeRangeOnExec marks all descriptors from one on.
func closeRangeOnExec(first uintptr) error {
	last := ^uint32(0)
	if _, _, errno := syscall.RawSyscall(sysCloseRange, first, uintptr(last), closeRangeCloexec); errno != 0 {
		return errno
	}
	return nil
}

// awaitChild waits until a child can be reaped, or there is none, or a signal
// came: the caller looks.
func awaitChild() {
	var info [128]byte
	_, _, _ = syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, uintptr(unsafe.Pointer(&info)), //nolint:gosec // the call takes a pointer
		syscall.WEXITED|syscall.WNOWAIT|wall, 0, 0)
}

// unblockSignals lets every signal through to this thread.
func unblockSignals() {
	var none [sigsetSize]byte
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetmask, uintptr(unsafe.Pointer(&none)), 0, sigsetSize, 0, 0) //nolint:gosec // the call takes a pointer
}

// handler is what happens on a signal.
func handler(sig uintptr) uintptr {
	var action sigaction
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), sigsetSize, 0, 0) //nolint:gosec // the call takes a pointer
	if errno != 0 {
		return sigDefault
	}
	return action[0]
}

// setHandler cannot fail: the signals are ones whose action may be changed.
func setHandler(sig, handler uintptr) {
	action := sigaction{handler}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0) //nolint:gosec // the call takes a pointer
}
