package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// What may be wrong with a job, as the Kind of a [StartError].
var (
	// ErrInvalidJob is a job that no host can run.
	ErrInvalidJob = errors.New("invalid job")
	// ErrNoProgram is a program, such as a shell, that is not there.
	ErrNoProgram = errors.New("program not found")
	// ErrNotExecutable is a program that is there and cannot be run.
	ErrNotExecutable = errors.New("program not executable")
	// ErrNoDir is a working directory that is missing or no directory.
	ErrNoDir = errors.New("no such working directory")
	// ErrTooBig is an environment or arguments beyond the kernel's limits.
	ErrTooBig = errors.New("arguments and environment too big")
	// ErrNoResources is a host that has no processes, descriptors or memory
	// left; the same job may start later or elsewhere.
	ErrNoResources = errors.New("host out of resources")
	// ErrSupervisor is a supervisor that did not come up.
	ErrSupervisor = errors.New("supervisor did not start")
)

// Errors of running jobs and of ending them.
var (
	// ErrOutput says that some of the output did not reach its writer.
	ErrOutput = errors.New("output lost")
	// ErrNotProved says that what was left of a node was ended as far as it
	// could be found, and that more may live: both its worker and its
	// supervisor were killed, and there was no cgroup.
	ErrNotProved = errors.New("could not be proved gone")
	// ErrStillAlive says that processes did not end by SIGKILL in time.
	ErrStillAlive = errors.New("still alive after SIGKILL")
)

// StartError says why a job could not be started.
type StartError struct {
	// Kind is one of the errors above.
	Kind error
	// Message is for the people who wrote the job. It holds no values of
	// variables.
	Message string
	// Err is the system's error, if there was one.
	Err error
}

// Error is the message.
func (e *StartError) Error() string { return e.Message }

// Unwrap returns the kind and the system's error.
func (e *StartError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

func startError(kind, err error, format string, args ...any) *StartError {
	return &StartError{Kind: kind, Message: fmt.Sprintf(format, args...), Err: err}
}

// check finds what is wrong with a job before anything is started, and where
// its program is.
func (j Job) check() (program string, err error) {
	switch {
	case j.Node == "":
		return "", startError(ErrInvalidJob, nil, "the job names no node")
	case len(j.Argv) == 0 || j.Argv[0] == "":
		return "", startError(ErrInvalidJob, nil, "the job names no program")
	case j.Grace < 0 || j.DeadMan < 0 || j.PipeDelay < 0:
		return "", startError(ErrInvalidJob, nil, "the job has a negative duration")
	}
	for i, arg := range j.Argv {
		if strings.ContainsRune(arg, 0) {
			return "", startError(ErrInvalidJob, nil, "argument %d holds a NUL byte, which no program can receive", i)
		}
	}
	for _, kv := range append([]string{EnvNode + "=" + j.Node}, j.Env...) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return "", startError(ErrInvalidJob, nil, "an environment variable has no name")
		}
		if strings.ContainsRune(kv, 0) {
			return "", startError(ErrInvalidJob, nil, "the variable %q holds a NUL byte, which no program can receive", name)
		}
	}
	if err := checkDir(j.Dir); err != nil {
		return "", err
	}
	return j.findProgram()
}

// checkDir says what is wrong with a working directory.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return startError(ErrNoDir, err, "the working directory %q does not exist", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return startError(ErrNoDir, err, "the working directory %q lies below a file", dir)
	case err != nil:
		return startError(ErrNoDir, err, "the working directory %q cannot be used: %v", dir, err)
	case !info.IsDir():
		return startError(ErrNoDir, syscall.ENOTDIR, "the working directory %q is a file, not a directory", dir)
	}
	return nil
}

// findProgram returns the path to execute.
func (j Job) findProgram() (string, error) {
	name := j.Argv[0]
	if strings.Contains(name, "/") {
		full := name
		if !filepath.IsAbs(name) {
			full = filepath.Join(j.Dir, name)
		}
		return name, checkProgram(name, full)
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range j.Env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	var found error
	for _, dir := range filepath.SplitList(search) {
		full := filepath.Join(dir, name)
		if !filepath.IsAbs(full) {
			continue // as exec.LookPath: a program of the workspace is named by its path
		}
		err := checkProgram(name, full)
		if err == nil {
			return full, nil
		}
		if !errors.Is(err, ErrNoProgram) && found == nil {
			found = err
		}
	}
	if found != nil {
		return "", found
	}
	return "", startError(ErrNoProgram, fs.ErrNotExist, "the program %q is not on this host (looked in %s)", name, search)
}

// checkProgram says what is wrong with a program at a path.
func checkProgram(name, full string) error {
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return startError(ErrNoProgram, err, "the program %q is not on this host", name)
	case err != nil:
		return startError(ErrNotExecutable, err, "the program %q cannot be executed: %v", full, err)
	case info.IsDir():
		return startError(ErrNotExecutable, syscall.EISDIR, "the program %q is a directory", full)
	case info.Mode()&0o111 == 0:
		return startError(ErrNotExecutable, fs.ErrPermission, "the program %q is not executable (mode %v)", full, info.Mode())
	}
	return nil
}
