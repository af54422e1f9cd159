package tree

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// Children lists the direct children of a process, zombies included. A child
// belongs to the thread that started it, so all threads are asked. A process
// that is gone has none.
func Children(pid int) []int {
	tasks := path(pid, "task")
	var children []int
	for _, tid := range numbersIn(tasks) {
		text, err := os.ReadFile(tasks + "/" + strconv.Itoa(tid) + "/children")
		if errors.Is(err, fs.ErrNotExist) && !hasChildrenFile() {
			return childrenByScan(pid)
		}
		// Any other error: the thread ended, and its children went to
		// another thread or to the sub-reaper, where the next look finds them.
		for field := range bytes.FieldsSeq(text) {
			if n, err := strconv.Atoi(string(field)); err == nil {
				children = append(children, n)
			}
		}
	}
	return children
}

// Descendants lists everything below a process, parents before children,
// zombies included. It is a look at one moment: what forks meanwhile may be
// missing.
func Descendants(pid int) []int {
	all := Children(pid)
	seen := make(map[int]bool, len(all))
	for i := 0; i < len(all); i++ {
		if seen[all[i]] {
			continue
		}
		seen[all[i]] = true
		all = append(all, Children(all[i])...)
	}
	return all
}

// Processes lists every process of the machine, or of the pid namespace.
func Processes() []int {
	return numbersIn("/proc")
}

// hasChildrenFile says whether this kernel was built with CONFIG_PROC_CHILDREN.
func hasChildrenFile() bool {
	self := strconv.Itoa(os.Getpid())
	_, err := os.Stat("/proc/self/task/" + self + "/children")
	return err == nil
}

// childrenByScan finds the children of a process where the kernel does not
// list them.
func childrenByScan(pid int) []int {
	var children []int
	for _, n := range Processes() {
		if s, err := ReadStat(n); err == nil && s.PPID == pid {
			children = append(children, n)
		}
	}
	return children
}

// numbersIn lists the entries of a directory of /proc that are numbers. A
// directory that is gone, as that of an ended process, has none.
func numbersIn(dir string) []int {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }() // opened to read
	names, _ := d.Readdirnames(-1)   // what was read before the process ended is enough
	numbers := make([]int, 0, len(names))
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
