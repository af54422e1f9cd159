package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"belay.run/internal/archive"
	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/store"
)

// What a source or the artifacts of a stage may be at most.
const (
	maxArchiveBytes = 16 << 30
	maxArchiveFiles = 2_000_000
)

// Prepare fills a stage's workspace: its source first, then what the stages it
// needs have saved. It begins with an empty workspace each time.
func (s *Steps) Prepare(ctx context.Context, in PrepareInput) error {
	unstick(ctx, s.Client, s.Namespace)
	defer beating(ctx)()
	s.forget(in.Owner)
	dirs := s.Host.Dirs(in.Owner.RunKey, in.Owner.Node)
	if err := s.Host.Empty(ctx, dirs.Workspace); err != nil {
		return fmt.Errorf("emptying the workspace of an earlier attempt: %w", err)
	}
	if err := s.laySource(ctx, in, dirs.Workspace); err != nil {
		return err
	}
	for _, key := range in.Artifacts {
		if err := s.unpack(ctx, "artifacts of an earlier stage", key, dirs.Workspace); err != nil {
			return err
		}
	}
	return nil
}

func (s *Steps) laySource(ctx context.Context, in PrepareInput, dir string) error {
	switch {
	case in.SourceRef != "":
		return s.unpack(ctx, "the source", in.SourceRef, dir)
	case in.Source != nil && in.Source.Git != "":
		return s.clone(ctx, in, dir)
	case in.Source != nil && in.Source.Path != "":
		if err := copyFolder(ctx, *in.Source, dir); err != nil {
			return fmt.Errorf("copying the source folder %s: %w", in.Source.Path, err)
		}
	}
	return nil
}

// unpack lays the archive at key, which holds what, into dir. One that the store
// does not have never comes by waiting: that error is returned as it is, since
// Temporal retries an application error that is wrapped.
func (s *Steps) unpack(ctx context.Context, what, key, dir string) error {
	_, err := archive.UnpackFromStore(ctx, s.Store, key, dir, limits())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fail(run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: fmt.Sprintf(
			"laying %s: %s is not in the store at %s: do the starter and this worker use the same BELAY_STORE?", what, key, s.Store)})
	case err != nil:
		return fmt.Errorf("laying %s: %w", what, err)
	}
	return nil
}

func limits() archive.Limits { return archive.Limits{Bytes: maxArchiveBytes, Files: maxArchiveFiles} }

// copyFolder lays a folder of this machine into dir, as a packed one would be.
func copyFolder(ctx context.Context, src spec.Source, dir string) error {
	r, w := io.Pipe()
	go func() {
		_, err := archive.Pack(ctx, w, src.Path, archive.Options{Exclude: src.Exclude, Limit: maxArchiveBytes})
		w.CloseWithError(err)
	}()
	_, err := archive.Unpack(ctx, r, dir, limits())
	return errors.Join(err, r.Close())
}

// SaveArtifacts stores the files that a stage hands to others, and answers with
// their key.
func (s *Steps) SaveArtifacts(ctx context.Context, in SaveInput) (string, error) {
	unstick(ctx, s.Client, s.Namespace)
	defer beating(ctx)()
	dirs := s.Host.Dirs(in.Owner.RunKey, in.Owner.Node)
	key, _, err := archive.PackToStore(ctx, s.Store, "artifacts", dirs.Workspace,
		archive.Options{Include: in.Paths, Limit: maxArchiveBytes})
	switch {
	case errors.Is(err, archive.ErrNoMatch):
		return "", fail(run.Cause{Trigger: run.TriggerInvalid, Message: fmt.Sprintf("artifacts: %v", err)})
	case errors.Is(err, archive.ErrTooLarge):
		return "", fail(run.Cause{Trigger: run.TriggerLimitExceeded, Message: fmt.Sprintf("artifacts: %v", err)})
	case err != nil:
		return "", fmt.Errorf("saving artifacts: %w", err)
	}
	return key, nil
}

// Release ends whatever is left of the stage's processes and removes its
// workspace. What is not there counts as released.
func (s *Steps) Release(ctx context.Context, owner Owner) error {
	unstick(ctx, s.Client, s.Namespace)
	defer beating(ctx)()
	s.forget(owner)
	if err := s.Proc.EndNode(ctx, processNode(owner.RunKey, owner.Node)); err != nil && !errors.Is(err, proc.ErrNotProved) {
		return fmt.Errorf("ending what is left of stage %s: %w", owner.Node, err)
	}
	s.Resources.holds.drop(nodeKey{owner.RunKey, owner.Node}, 0)
	if _, err := s.Resources.releaseHere(ctx, owner.RunKey, func(e *resource.Entry) bool { return run.Within(e.Node, owner.Node) }); err != nil {
		s.Logger.Warn("could not read all records of resources", zap.Error(err))
	}
	if err := RemoveContainers(ctx, s.Host, s.Containers, owner.RunKey, owner.Node); err != nil {
		return err
	}
	if err := s.Host.Release(ctx, owner.RunKey, owner.Node); err != nil {
		return fmt.Errorf("removing the workspace of stage %s: %w", owner.Node, err)
	}
	return nil
}

// beating sends heartbeats until the function it returns is called, so that a
// cancel reaches the activity's context and a dead worker is noticed.
func beating(ctx context.Context) func() {
	return beatingWith(ctx, func() []any { return nil })
}

// beatingWith is beating with something to say.
func beatingWith(ctx context.Context, say func() []any) func() {
	return beatingEvery(ctx, firstHeartbeat, heartbeatPeriod, say)
}

// beatingEvery sends the first heartbeat, and the others, after so long.
func beatingEvery(ctx context.Context, first, period time.Duration, say func() []any) func() {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		next := time.NewTimer(first)
		defer next.Stop()
		for {
			select {
			case <-done:
				return
			case <-next.C:
				activity.RecordHeartbeat(ctx, say()...)
				next.Reset(period)
			}
		}
	}()
	return func() { close(done); <-stopped }
}
