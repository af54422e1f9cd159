package tree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cgroup is the directory of a cgroup v2. What is started in it, and all its
// children, stay in it, whatever sessions and parents they take; only who may
// write to the hierarchy can leave it.
type Cgroup string

// Processes lists the living processes of the cgroup and those below it.
func (c Cgroup) Processes() []int {
	var pids []int
	for _, dir := range c.subtree() {
		text, err := os.ReadFile(dir + "/cgroup.procs")
		if err != nil {
			continue // removed meanwhile: empty
		}
		for field := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(field)); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Contains says whether a process is in the cgroup or below it. Only the last
// part of its path is compared, since a process in a cgroup namespace sees
// another beginning; the names of steps are unique.
func (c Cgroup) Contains(pid int) bool {
	text, err := os.ReadFile(path(pid, "cgroup"))
	if err != nil {
		return false
	}
	name := "/" + string(c[strings.LastIndexByte(string(c), '/')+1:])
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\n")
		if own, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return bytes.HasSuffix(own, []byte(name)) || bytes.Contains(own, []byte(name+"/"))
		}
	}
	return false
}

// Empty says whether no process is in the cgroup or below it. A cgroup that
// does not exist is empty.
func (c Cgroup) Empty() (bool, error) {
	text, err := os.ReadFile(string(c) + "/cgroup.events")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return bytes.Contains(text, []byte("populated 0")), nil
}

// WaitEmpty waits until the cgroup is empty, at most for d, and says whether
// it is. The kernel tells of each change; nothing is asked again and again.
func (c Cgroup) WaitEmpty(d time.Duration) bool {
	if empty, err := c.Empty(); err == nil && empty {
		return true
	}
	fd, err := syscall.Open(string(c)+"/cgroup.events", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, syscall.ENOENT)
	}
	defer func() { _ = syscall.Close(fd) }() // opened to read
	const pollPri = 2
	var buf [256]byte
	for deadline := time.Now().Add(d); ; {
		n, err := syscall.Pread(fd, buf[:], 0) // reading arms the next event
		if errors.Is(err, syscall.ENODEV) {
			return true
		}
		if err == nil && bytes.Contains(buf[:n], []byte("populated 0")) {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		poll(fd, pollPri, left)
	}
}

// Kill ends everything in the cgroup and below it at once; the kernel holds
// back what is being forked. A kernel before 5.14 has no such file: then each
// process is killed, and whoever calls repeats it until the cgroup is empty.
func (c Cgroup) Kill() error {
	file, err := os.OpenFile(string(c)+"/cgroup.kill", os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString("1")
		return errors.Join(err, file.Close())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, pid := range c.Processes() {
		_ = SignalIf(pid, syscall.SIGKILL, func(s Stat) bool { return c.Contains(s.PID) }) // it may have ended
	}
	return nil
}

// Remove removes the cgroup and those that a step made below it. It fails with
// EBUSY while a process is in one.
func (c Cgroup) Remove() error {
	err := syscall.Rmdir(string(c))
	if errors.Is(err, syscall.EBUSY) {
		for _, dir := range slices.Backward(c.subtree()) {
			err = syscall.Rmdir(dir)
		}
	}
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: string(c), Err: err}
	}
	return nil
}

// CPU is the time that all processes of the cgroup took, also those that
// nobody waited for.
func (c Cgroup) CPU() (user, system time.Duration) {
	text, err := os.ReadFile(string(c) + "/cpu.stat")
	if err != nil {
		return 0, 0 // the caller has the times of the processes it reaped
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" "))
		micros, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case err != nil:
		case string(name) == "user_usec":
			user = time.Duration(micros) * time.Microsecond
		case string(name) == "system_usec":
			system = time.Duration(micros) * time.Microsecond
		}
	}
	return user, system
}

// PeakMemory is the most memory that the cgroup ever held, in bytes; 0 where
// the memory controller is not on.
func (c Cgroup) PeakMemory() int64 {
	text, err := os.ReadFile(string(c) + "/memory.peak")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// subtree lists the cgroup and all below it, parents first.
func (c Cgroup) subtree() []string {
	dirs := []string{string(c)}
	for i := 0; i < len(dirs); i++ {
		entries, err := os.ReadDir(dirs[i])
		if err != nil {
			continue // removed meanwhile
		}
		for _, e := range entries {
			if e.IsDir() {
				dirs = append(dirs, dirs[i]+"/"+e.Name())
			}
		}
	}
	return dirs
}
