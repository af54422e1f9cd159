package supervisor

import "syscall"

// connect makes the descriptors that came with a job stdout and stderr.
func connect(files []int) {
	for i, fd := range files {
		_ = syscall.Dup3(fd, 1+i, 0) // both are open descriptors
		_ = syscall.Close(fd)        // a copy that was passed
	}
}

// release closes what hold opened.
func release(held []int) {
	for _, fd := range held {
		_ = syscall.Close(fd) // opened to read
	}
}

// hold opens the reading ends of the step's output that the worker reads too.
// As long as the worker lives it alone reads.
func hold(j Job) []int {
	var held []int
	for fd, wanted := range map[string]bool{"/proc/self/fd/1": j.HoldOut, "/proc/self/fd/2": j.HoldErr} {
		if !wanted {
			continue
		}
		// An open by name, not a copy: the worker's end waits in another way.
		if end, err := syscall.Open(fd, syscall.O_RDONLY|syscall.O_CLOEXEC, 0); err == nil {
			held = append(held, end)
		}
	}
	return held
}

// silence lets go of the step's output, which otherwise stays open as long as
// the supervisor lives.
func silence() {
	for _, fd := range []int{1, 2} {
		_ = syscall.Dup3(0, fd, 0) // both are open descriptors
	}
}

// discard reads what a step says to a worker that is dead.
func discard(fd int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := syscall.Read(fd, buf)
		if n <= 0 && err != syscall.EINTR {
			return
		}
	}
}
