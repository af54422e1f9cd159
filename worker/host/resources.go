package host

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/workspace"
)

// newResources makes the activities that give back what steps acquire.
func (w *Worker) newResources(ctx context.Context, environ []string) (*activities.Resources, error) {
	records, err := resource.OpenRecords(filepath.Join(w.host.Dir(), "resources"))
	if err != nil {
		return nil, err
	}
	w.clear(activities.ReleasesDir(w.host))
	s, t := w.cfg.Settings, w.deps.temporal
	if w.once.claims != nil {
		// Asked before anybody holds a lock, a Redis that is new is not taken
		// for one that has lost its memory.
		if _, _, err := w.once.claims.Recovering(ctx); err != nil {
			w.log.Debug("could not ask Redis since when it remembers", zap.Error(err))
		}
	}
	resources := activities.NewResources(activities.ResourcesConfig{
		Client: t.Client, Namespace: t.Namespace, Host: w.host, Proc: w.deps.processes, Secrets: w.deps.secrets,
		Environment: environ, Records: records, Ledger: w.deps.ledger, Logger: w.log.Named("resources"),
		Meter: w.metrics,
		Kinds: append(w.containerKinds(), []resource.Kind{
			resource.NewLocks(w.deps.redis, resource.LocksOptions{
				Recovering: activities.LockRecovery(w.deps.claims), Log: w.log.Named("resources"),
			}),
			resource.NewPorts(s.PortDir, s.PortRange.Low, s.PortRange.High, w.host.Boot()),
			activities.TempDirs(w.host),
			&activities.Workspaces{Host: w.host, Proc: w.deps.processes, Containers: w.deps.containers},
			&resource.Credentials{Providers: s.Credentials},
		}...),
	})
	w.onStop(func() error {
		activities.StopKeeping(resources)
		return nil
	})
	return resources, nil
}

// sweepResources gives back what stages acquired on this host that have ended, and
// whose end nobody heard of here. It reports whether it let something rest that
// could not be given back before.
func (s *stages) sweepResources(ctx context.Context) (rest bool, err error) {
	if s.resources == nil {
		return false, nil
	}
	all, err := s.resources.Records.All()
	errs := []error{err}
	asked := map[string]bool{}
	for i := range all {
		runKey, node, workflowID := activities.StageEntry(&all[i])
		if asked[workflowID] || ctx.Err() != nil {
			continue
		}
		asked[workflowID] = true
		ended, err := s.ended(ctx, workspace.Binding{RunKey: runKey, Node: node, WorkflowID: workflowID})
		if err != nil {
			return rest, errors.Join(append(errs, err)...)
		}
		if !ended {
			continue
		}
		left, later, err := activities.ReleaseHere(ctx, s.resources, runKey, node)
		errs, rest = append(errs, err), rest || later
		for j := range left {
			if e := &left[j]; e.Open() {
				errs = append(errs, fmt.Errorf("giving back %s %s of %s: %s", e.Kind, e.Name, e.Node, e.Error))
			}
		}
	}
	return rest, errors.Join(errs...)
}
