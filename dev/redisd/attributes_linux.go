package redisd

import "syscall"

// attributes put the child into a group of its own, so that a Ctrl-C on the
// terminal reaches it only through us, and end it when we are killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
