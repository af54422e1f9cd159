package activities

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"belay.run/internal/proc"
	"belay.run/internal/resource"
)

// attemptScripts runs the scripts of custom resources for an attempt: acquire as
// the step itself is run, release as everywhere, with its output in the step's
// log.
type attemptScripts struct {
	scripts

	a   *attempt
	env environ
}

func (a *attempt) scripts(env environ) *attemptScripts {
	return &attemptScripts{
		scripts: scripts{of: a.steps.Resources, out: logOut{a, false}, errOut: logOut{a, true}},
		a:       a, env: env,
	}
}

// logOut writes to the attempt's log what is masked by its own secrets.
type logOut struct {
	a   *attempt
	err bool
}

// Write never fails a script: a log that is not whole is noted by the attempt.
func (l logOut) Write(p []byte) (int, error) {
	to := l.a.log.Stdout()
	if l.err {
		to = l.a.log.Stderr()
	}
	_, _ = to.Write(p)
	return len(p), nil
}

// scriptError is an acquire script that ended by saying that it failed.
type scriptError struct{ text string }

func (e *scriptError) Error() string { return e.text }

// Acquire runs the script in the workspace, with the step's variables. It hands
// over the id by a line id=… on its standard output, or in the file named by
// BELAY_OUTPUT.
func (s *attemptScripts) Acquire(ctx context.Context, e *resource.Entry, script string) (id string, err error) {
	a := s.a
	file, output := filepath.Join(a.temp, "acquire"), filepath.Join(a.temp, "acquired")
	defer func() {
		// The first is ours, the second whatever the script made of it: what
		// stays goes with the directory.
		_, _ = os.Remove(file), os.Remove(output)
	}()
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return "", fmt.Errorf("writing the acquire script: %w", err)
	}
	env := environ{}
	env.add(s.env)
	for _, name := range a.in.Step.Secrets {
		if !slices.Contains(e.Release.Secrets, name) { // it is another resource's
			delete(env, name)
		}
	}
	env["BELAY_OUTPUT"], env[resource.EnvHolder] = output, e.Holder()
	ids := &idLines{}
	out, errOut := a.mask.Writer(a.log.Stdout()), a.mask.Writer(a.log.Stderr())
	p, err := a.steps.Proc.Start(ctx, proc.Job{
		Node: processNode(a.key.runKey, a.key.node), Argv: shellArgv(a.in.Step.Shell, file),
		Dir: filepath.Join(a.dirs.Workspace, filepath.FromSlash(a.in.Step.WorkingDir)), Env: env.list(),
		Stdout: io.MultiWriter(ids, out), Stderr: errOut, Grace: a.in.Step.GracePeriod, DeadMan: deadMan,
	})
	if err != nil {
		return "", errors.Join(fmt.Errorf("starting the acquire script: %w", err), out.Close(), errOut.Close())
	}
	stop := context.AfterFunc(ctx, p.Terminate)
	res, err := a.attend(p)
	stop()
	if err := errors.Join(err, out.Close(), errOut.Close()); err != nil && !errors.Is(err, proc.ErrOutput) {
		return "", fmt.Errorf("running the acquire script: %w", err)
	}
	if !res.Gone {
		a.notGone = res.GoneNote
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case res.DeadMan || res.SupervisorLost || res.Signal != "" || res.ExitCode < 0:
		return "", fmt.Errorf("acquire: %s", res) // it may have acquired
	case res.ExitCode != 0:
		return "", &scriptError{fmt.Sprintf("acquire: %s", res)}
	}
	text, err := readOutputFile(output)
	if err != nil {
		return "", fmt.Errorf("reading what acquire wrote: %w", err)
	}
	return ids.last(text), nil
}

// idLines finds the last line id=… in what is written to it.
type idLines struct {
	mu   sync.Mutex
	line []byte
	id   string
}

func (l *idLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(p) {
		// One longer than an id can be is none; it is cut, and seen to be.
		if room := resource.MaxID + len("id=\r\n") + 1 - len(l.line); room > 0 {
			l.line = append(l.line, line[:min(len(line), room)]...)
		}
		if line[len(line)-1] == '\n' {
			l.take()
		}
	}
	return len(p), nil
}

func (l *idLines) take() {
	if id, ok := strings.CutPrefix(strings.TrimRight(string(l.line), "\r\n"), "id="); ok {
		l.id = id
	}
	l.line = l.line[:0]
}

// last is the last id, of what was printed and then of text.
func (l *idLines) last(text []byte) string {
	// Neither write fails.
	_, _ = l.Write([]byte("\n"))
	_, _ = l.Write(append(bytes.Clone(text), '\n'))
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}
