package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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
func (s *scripts) Release(ctx context.Context, e *resource.Entry, more map[string]string) error {
	if e.Release == nil {
		return errors.New("nothing is recorded that would release it")
	}
	values, err := secret.Load(ctx, s.of.Secrets, e.Release.Secrets)
	if err != nil {
		return fmt.Errorf("reading secrets for the release script: %w", err)
	}
	release := script{
		proc: s.of.Proc, what: "the release script", base: ReleasesDir(s.of.Host), prefix: "release-", remove: s.of.Host.Remove,
		text: e.Release.Script, shell: e.Release.Shell, secrets: values, out: s.out, errOut: s.errOut, most: maxLastWords,
		worker: s.of.Environment,
		env: func(string) map[string]string {
			env := map[string]string{"CI": "true"}
			maps.Copy(env, e.Release.Env)
			maps.Copy(env, more)
			return env
		},
		job: proc.Job{Node: releaseNodes + processNode(e.RunKey, e.Node), Grace: scriptGrace, DeadMan: ReleaseTry + releaseLate},
	}
	res, said, err := release.run(ctx)
	if err != nil && !errors.Is(err, proc.ErrOutput) {
		return err
	}
	if ctx.Err() != nil && res.ExitCode != 0 {
		return context.Cause(ctx)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("release: %s%s", res, said)
	}
	return nil
}
