package activities

import (
	"context"
	"fmt"
	"strings"
	"time"

	"belay.run/internal/proc"
	"belay.run/internal/run"
)

// clone fetches one ref of a git repository into dir, without its history.
func (s *Steps) clone(ctx context.Context, in PrepareInput, dir string) error {
	ref := in.Source.Ref
	if ref == "" {
		ref = "HEAD"
	}
	for _, args := range [][]string{
		{"init", "--quiet", "."},
		{"fetch", "--quiet", "--depth=1", "--no-tags", "--", in.Source.Git, ref},
		{"-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD"},
	} {
		if err := s.git(ctx, in.Owner, dir, args); err != nil {
			return err
		}
	}
	return nil
}

// git runs one git command as a process tree of the stage, so that it ends with
// the stage and with the worker.
func (s *Steps) git(ctx context.Context, owner Owner, dir string, args []string) error {
	said := &tail{most: maxSaid}
	env := append([]string{
		"HOME=" + s.Host.Dirs(owner.RunKey, owner.Node).Home, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1",
	}, s.Environment...)
	p, err := s.Proc.Start(ctx, proc.Job{
		Node: processNode(owner.RunKey, run.StepNode(owner.Node, "(source)")), Argv: append([]string{"git"}, args...),
		Dir: dir, Env: env, Stdout: said, Stderr: said, Grace: 5 * time.Second, DeadMan: 0,
	})
	if err != nil {
		return fmt.Errorf("source: starting git: %w", err)
	}
	defer context.AfterFunc(ctx, p.Terminate)()
	res, err := p.Wait()
	switch {
	case err != nil:
		return fmt.Errorf("source: running git %s: %w", args[0], err)
	case ctx.Err() != nil:
		return ctx.Err()
	case res.ExitCode != 0 || res.Signal != "":
		return fail(run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: fmt.Sprintf(
			"source: git %s of %s ended with code %d: %s", args[0], redactURL(args), res.ExitCode, said.String())})
	}
	return nil
}

// redactURL is the repository among the arguments without a password in it.
func redactURL(args []string) string {
	for i, a := range args {
		if a == "--" && i+1 < len(args) {
			scheme, rest, ok := strings.Cut(args[i+1], "://")
			if _, host, userinfo := strings.Cut(rest, "@"); ok && userinfo {
				return scheme + "://***@" + host
			}
			return args[i+1]
		}
	}
	return "the source"
}
