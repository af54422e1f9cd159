// Package command asks commands that an operator has named for an answer: those
// that issue credentials, or know secrets or logins.
package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// closeWithin is what a command may take to close its output after it was killed.
const closeWithin = time.Second

// Call is one call of a command. All but Argv, Most and Within may be left out.
type Call struct {
	Argv []string
	// Env are variables beside those of this process.
	Env []string
	// Input is what it reads on standard input.
	Input string
	// Most is how many bytes it may print, and Within how long it may take.
	Most   int
	Within time.Duration
}

// Output returns what the command printed, also beside an [exec.ExitError] where
// it ended badly. Its standard error is not kept, as it may hold secrets. A
// command that takes too long, or prints too much, is ended with all that it
// started.
func (c Call) Output(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Within, fmt.Errorf("no answer within %s", c.Within))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	out := &limited{most: c.Most}
	cmd.Stdin, cmd.Stdout, cmd.Env = strings.NewReader(c.Input), out, append(os.Environ(), c.Env...)
	// A process group of its own, so that what the command started ends too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = closeWithin
	err := cmd.Run()
	switch {
	case out.over:
		return nil, fmt.Errorf("it printed more than %d bytes", c.Most)
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return out.text, err
}

// limited keeps what is written up to a bound and fails after that, which ends
// the writer by a closed pipe.
type limited struct {
	text []byte
	most int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if len(l.text)+len(p) > l.most {
		l.over = true
		return 0, io.ErrShortWrite
	}
	l.text = append(l.text, p...)
	return len(p), nil
}
