package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// execTimeout bounds one call of a command, and execWait what it may take
	// to close its output after it was killed.
	execTimeout = 10 * time.Second
	execWait    = time.Second
	// exitUnknown is the exit code by which a command says that it does not
	// know the name.
	exitUnknown = 3
)

// Exec runs a command, with the name of the secret as its last argument, and
// takes what it prints as the value, without one newline at the end. Exit code
// 3 means that it does not know the name, any other but 0 that it failed. What
// it writes to standard error is never shown, since it may hold secrets.
func Exec(command ...string) Provider {
	return program{command: command, timeout: execTimeout}
}

type program struct {
	command []string
	timeout time.Duration
}

func (c program) Get(ctx context.Context, name string) (Value, error) {
	if err := checkName(name); err != nil {
		return Value{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s", c.timeout))
	defer cancel()
	text, err := c.run(ctx, name)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return valueOf(name, c.Where(name), trimNewline(text))
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &exit) && exit.ExitCode() == exitUnknown:
		return Value{}, notFound(name, c.Where(name))
	case errors.As(err, &exit):
		err = fmt.Errorf("%w; its standard error is not shown, since it may hold secrets: try it by hand", exit)
	}
	return Value{}, fmt.Errorf("secret %s: %s: %w", name, c.Where(name), err)
}

func (c program) run(ctx context.Context, name string) (string, error) {
	args := append(slices.Clone(c.command[1:]), name)
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	out := &bounded{}
	cmd.Stdout = out
	// A process group of its own, so that what the command started ends too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = execWait
	err := cmd.Run()
	if out.over {
		return "", fmt.Errorf("it printed more than %d bytes", maxSize)
	}
	return out.b.String(), err
}

func (c program) Where(string) string {
	return "the command " + strings.Join(c.command, " ")
}

// bounded keeps up to maxSize bytes and fails after that, which ends the
// command by a closed pipe.
type bounded struct {
	b    strings.Builder
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.b.Len()+len(p) > maxSize+len("\r\n") {
		b.over = true
		return 0, io.ErrShortWrite
	}
	return b.b.Write(p)
}
