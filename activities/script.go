package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"belay.run/internal/proc"
	"belay.run/internal/secret"
)

// script is a shell script that runs beside steps, in a directory of its own
// that goes with it. What it prints is masked by the secrets that it is given.
type script struct {
	proc *proc.Host
	// what names it in errors.
	what string
	// base holds its directory, whose name begins with prefix; remove takes that
	// away.
	base, prefix string
	remove       func(ctx context.Context, dir string) error
	text, shell  string
	secrets      []secret.Value
	// more are further files of its directory. Its environment is the worker's,
	// its home there, what env adds, and the secrets.
	more   map[string][]byte
	worker []string
	env    func(dir string) map[string]string
	// job is its process, save what follows from the above.
	job proc.Job
	// out and errOut take what it prints beside what is kept of it; nil is
	// nowhere. Of that the last most bytes are kept.
	out, errOut io.Writer
	most        int
}

// run runs the script until it ends, or ctx does, which ends it. It returns how it
// ended, and what it said last.
func (s *script) run(ctx context.Context) (res proc.Result, said string, err error) {
	if err := os.MkdirAll(s.base, 0o700); err != nil {
		return res, "", fmt.Errorf("making a directory for %s: %w", s.what, err)
	}
	dir, err := os.MkdirTemp(s.base, s.prefix)
	if err != nil {
		return res, "", fmt.Errorf("making a directory for %s: %w", s.what, err)
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx), dir)) }()
	mask, err := secret.NewMasker(s.secrets...)
	if err != nil {
		return res, "", fmt.Errorf("reading secrets for %s: %w", s.what, err)
	}
	file := filepath.Join(dir, "script")
	if err := s.write(dir, file); err != nil {
		return res, "", fmt.Errorf("writing %s: %w", s.what, err)
	}
	env := environOf(s.worker)
	env["HOME"], env["TMPDIR"] = dir, dir
	env.add(s.env(dir))
	for _, v := range s.secrets {
		env[v.Name()] = v.Reveal()
	}
	last := &tail{most: s.most}
	out, errOut := mask.Writer(io.MultiWriter(last, orNowhere(s.out))), mask.Writer(io.MultiWriter(last, orNowhere(s.errOut)))
	job := s.job
	job.Argv, job.Dir, job.Env, job.Stdout, job.Stderr = shellArgv(s.shell, file), dir, env.list(), out, errOut
	res, err = s.wait(ctx, job)
	err = errors.Join(err, out.Close(), errOut.Close())
	return res, last.said(), err
}

func (s *script) write(dir, file string) error {
	err := os.WriteFile(file, []byte(s.text), 0o600)
	for name, text := range s.more {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return err
}

func (s *script) wait(ctx context.Context, job proc.Job) (proc.Result, error) {
	p, err := s.proc.Start(ctx, job)
	if err != nil {
		return proc.Result{}, fmt.Errorf("starting %s: %w", s.what, err)
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
