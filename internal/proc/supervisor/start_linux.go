package supervisor

import (
	"os"
	"syscall"
)

func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	if len(os.Args) > 1 && os.Args[1] == Probe {
		syscall.Exit(0)
	}
	syscall.Exit(run())
}

// isolate makes the supervisor one that a step cannot look into, and that
// passes nothing on to the step but what the step is to have.
func isolate() error {
	if err := prctl(prSetDumpable, 0); err != nil {
		return err
	}
	if err := prctl(prSetChildSubreaper, 1); err != nil {
		return err
	}
	if err := setName(Comm); err != nil {
		return err
	}
	return closeOnExec()
}

// closeOnExec keeps every descriptor but the first three from the step: those
// of the supervisor, and whatever the worker was started with.
func closeOnExec() error {
	if closeRangeOnExec(ControlFD) == nil {
		return nil
	}
	dir, err := os.Open("/proc/self/fd") // a kernel before 5.11
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // opened to read
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd := 0
		for _, digit := range []byte(name) {
			fd = fd*10 + int(digit-'0')
		}
		if fd >= ControlFD {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// spawn starts the step in a process group, and a cgroup, of its own.
func spawn(j Job) (pid int, err error) {
	sys := &syscall.SysProcAttr{Setpgid: true}
	if j.Cgroup != "" {
		fd, err := syscall.Open(j.Cgroup, syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		defer func() { _ = syscall.Close(fd) }() // opened to name the directory
		sys.UseCgroupFD, sys.CgroupFD = true, fd
	}
	resetSignals()
	pid, err = syscall.ForkExec(j.Path, j.Argv, &syscall.ProcAttr{
		Dir: j.Dir, Env: j.Env, Files: []uintptr{0, 1, 2}, Sys: sys,
	})
	ignoreSignals()
	return pid, err
}
