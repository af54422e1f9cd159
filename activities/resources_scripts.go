package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/secret"
	"belay.run/internal/workspace"
)

const (
	// scriptGrace is what a release script has between SIGTERM and SIGKILL.
	scriptGrace = 2 * time.Second
	// releaseNodes begins the names of processes that release something: what
	// ends the processes of a step is not to end them.
	releaseNodes = "!release/"
	// maxLastWords is how much of what a script said last its error keeps.
	maxLastWords = 300
)

// ReleasesDir is where the release scripts of a host run, each in a directory of
// its own. What a worker finds there when it starts was left by an earlier one.
func ReleasesDir(host *workspace.Host) string { return filepath.Join(host.Dir(), "releases") }

// scripts runs release scripts of custom resources, in an attempt or without.
type scripts struct {
	of *Resources
	// out and errOut take what a script prints, already masked by the step's
	// own secrets; nil is nowhere.
	out, errOut io.Writer
}

var _ resource.Scripts = (*scripts)(nil)

// Acquire is for attempts only.
func (s *scripts) Acquire(context.Context, *resource.Entry, string) (string, error) {
	return "", errors.New("a custom resource is acquired by an attempt of its step")
}

// Release runs the release script in an empty directory.
func (s *scripts) Release(ctx context.Context, e *resource.Entry, more map[string]string) (err error) {
	if e.Release == nil {
		return errors.New("nothing is recorded that would release it")
	}
	base := ReleasesDir(s.of.Host)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return fmt.Errorf("making a directory for a release script: %w", err)
	}
	dir, err := os.MkdirTemp(base, "release-")
	if err != nil {
		return fmt.Errorf("making a directory for a release script: %w", err)
	}
	defer func() { err = errors.Join(err, s.of.Host.Remove(context.WithoutCancel(ctx), dir)) }()
	values, err := secret.Load(ctx, s.of.Secrets, e.Release.Secrets)
	if err != nil {
		return fmt.Errorf("reading secrets for the release script: %w", err)
	}
	mask, err := secret.NewMasker(values...)
	if err != nil {
		return fmt.Errorf("reading secrets for the release script: %w", err)
	}
	env := environOf(s.of.Environment)
	env["CI"], env["HOME"], env["TMPDIR"] = "true", dir, dir
	env.add(e.Release.Env)
	env.add(more)
	for _, v := range values {
		env[v.Name()] = v.Reveal()
	}
	said := &tail{most: maxLastWords}
	out, errOut := mask.Writer(io.MultiWriter(said, orNowhere(s.out))), mask.Writer(io.MultiWriter(said, orNowhere(s.errOut)))
	res, err := s.run(ctx, dir, e, env, out, errOut)
	if err := errors.Join(err, out.Close(), errOut.Close()); err != nil && !errors.Is(err, proc.ErrOutput) {
		return err
	}
	if ctx.Err() != nil && res.ExitCode != 0 {
		return context.Cause(ctx)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("release: %s%s", res, said.said())
	}
	return nil
}

func (s *scripts) run(ctx context.Context, dir string, e *resource.Entry, env environ, out, errOut io.Writer) (proc.Result, error) {
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte(e.Release.Script), 0o600); err != nil {
		return proc.Result{}, fmt.Errorf("writing the release script: %w", err)
	}
	p, err := s.of.Proc.Start(ctx, proc.Job{
		Node: releaseNodes + processNode(e.RunKey, e.Node), Argv: shellArgv(e.Release.Shell, script), Dir: dir, Env: env.list(),
		Stdout: out, Stderr: errOut, Grace: scriptGrace, DeadMan: ReleaseTry + releaseLate,
	})
	if err != nil {
		return proc.Result{}, fmt.Errorf("starting the release script: %w", err)
	}
	defer context.AfterFunc(ctx, p.Terminate)()
	return p.Wait()
}

func orNowhere(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
