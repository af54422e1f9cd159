package secret

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"belay.run/internal/command"
)

const (
	// execTimeout bounds one call of a command.
	execTimeout = 10 * time.Second
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
	text, err := command.Call{
		Argv: append(slices.Clone(c.command), name), Most: maxSize + len("\r\n"), Within: c.timeout,
	}.Output(ctx)
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return valueOf(name, c.Where(name), trimNewline(string(text)))
	case exited && exit.ExitCode() == exitUnknown:
		return Value{}, notFound(name, c.Where(name))
	case exited:
		err = fmt.Errorf("%w; its standard error is not shown, since it may hold secrets: try it by hand", exit)
	}
	return Value{}, fmt.Errorf("secret %s: %s: %w", name, c.Where(name), err)
}

func (c program) Where(string) string {
	return "the command " + strings.Join(c.command, " ")
}
