package host

import (
	"context"

	"go.uber.org/zap"

	"belay.run/internal/config"
	"belay.run/internal/container"
	"belay.run/internal/resource"
	"belay.run/internal/workspace"
)

// openContainers prepares to use the machine's container engine, if it has one,
// and removes what attempts of an earlier worker left there.
func (w *Worker) openContainers(ctx context.Context) error {
	s := w.cfg.Settings
	if s.ContainerEngine == "" || s.ContainerEngine == config.ContainerEngineOff {
		return nil
	}
	engine, err := container.New(container.Options{
		Address: s.ContainerEngine, HostID: w.ID(), RegistryConfig: s.RegistryConfig, Log: w.log.Named("container"),
		Policy: container.Policy{Mounts: s.ContainerMounts, Privileged: s.ContainerPrivileged},
	})
	if err != nil {
		return err
	}
	w.deps.containers = engine
	w.onStop(engine.Close)
	sweepCtx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	// Services of stages that go on stay; later sweeps ask which do.
	found, err := engine.Sweep(sweepCtx, func(context.Context, container.Owner) (bool, error) { return false, nil })
	if err != nil {
		w.log.Warn("could not remove all containers that an earlier worker left; trying again later",
			zap.String("engine", s.ContainerEngine), zap.Error(err))
	}
	if found > 0 {
		w.log.Info("removed containers that an earlier worker left", zap.Int("containers", found))
	}
	return nil
}

// containerKinds is what gives containers back, where there can be any.
func (w *Worker) containerKinds() []resource.Kind {
	if w.deps.containers == nil {
		return nil
	}
	return []resource.Kind{w.deps.containers}
}

// sweepContainers removes the containers that no attempt holds, and services of
// stages that have ended.
func (s *stages) sweepContainers(ctx context.Context) error {
	if s.containers == nil {
		return nil
	}
	known := map[string]bool{}
	found, err := s.containers.Sweep(ctx, func(ctx context.Context, o container.Owner) (bool, error) {
		if over, asked := known[o.WorkflowID]; asked {
			return over, nil
		}
		over, err := s.ended(ctx, workspace.Binding{RunKey: o.RunKey, Node: o.Stage, WorkflowID: o.WorkflowID})
		if err == nil {
			known[o.WorkflowID] = over
		}
		return over, err
	})
	if found > 0 {
		s.log.Info("removed what is left of containers", zap.Int("containers", found))
	}
	return err
}
