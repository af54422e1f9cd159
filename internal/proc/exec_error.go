package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxString is the most that Linux takes in one argument or variable, its final
// NUL included.
const maxString = 128 << 10

// execError says in words why the kernel did not start a job that looked right.
func execError(job Job, program string, errno syscall.Errno) *StartError {
	switch {
	case errors.Is(errno, syscall.E2BIG):
		return tooBig(job, errno)
	case errors.Is(errno, syscall.EAGAIN), errors.Is(errno, syscall.ENOMEM),
		errors.Is(errno, syscall.EMFILE), errors.Is(errno, syscall.ENFILE):
		return startError(ErrNoResources, errno, "the host could not start %q: %v (the limit of processes, descriptors or memory is reached)", program, errno)
	}
	if err := checkDir(job.Dir); err != nil {
		return asStartError(err)
	}
	full := program
	if !filepath.IsAbs(full) {
		full = filepath.Join(job.Dir, full)
	}
	if err := checkProgram(program, full); err != nil {
		return asStartError(err)
	}
	switch {
	case errors.Is(errno, syscall.ENOENT):
		if line := firstLine(full); strings.HasPrefix(line, "#!") {
			return startError(ErrNoProgram, errno, "the program %q wants the interpreter %q, which is not on this host", program, strings.TrimSpace(line[2:]))
		}
		return startError(ErrNoProgram, errno, "the program %q or a loader that it needs is not on this host", program)
	case errors.Is(errno, syscall.ENOEXEC):
		return startError(ErrNotExecutable, errno, "the program %q is no executable of this system, nor a script that begins with #!", program)
	case errors.Is(errno, syscall.EACCES), errors.Is(errno, syscall.EPERM):
		return startError(ErrNotExecutable, errno, "%q may not be executed in %q: %v", program, job.Dir, errno)
	default:
		return startError(ErrNotExecutable, errno, "%q could not be executed: %v", program, errno)
	}
}

// tooBig names what makes arguments and environment too big, without values.
func tooBig(job Job, err error) *StartError {
	total, biggest, size := 0, "", 0
	see := func(what, s string) {
		total += len(s) + 1
		if len(s)+1 > size {
			biggest, size = what, len(s)+1
		}
	}
	for i, arg := range job.Argv {
		see(fmt.Sprintf("argument %d", i), arg)
	}
	for _, kv := range job.Env {
		name, _, _ := strings.Cut(kv, "=")
		see("the variable "+name, kv)
	}
	message := fmt.Sprintf("arguments and environment are too big for this system: %d KiB in %d arguments and %d variables; the largest is %s with %d KiB",
		total>>10, len(job.Argv), len(job.Env), biggest, size>>10)
	if size > maxString {
		message += fmt.Sprintf(" (one may have %d KiB)", maxString>>10)
	}
	return startError(ErrTooBig, err, "%s; pass large values in a file", message)
}

// firstLine reads the beginning of a file, as far as it matters for #!.
func firstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // opened to read
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	return string(line)
}

func asStartError(err error) *StartError {
	if start, ok := errors.AsType[*StartError](err); ok {
		return start
	}
	return startError(ErrSupervisor, err, "%v", err)
}
