package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/container"
	"belay.run/internal/logs"
	"belay.run/internal/proc"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/slots"
	"belay.run/internal/store"
	"belay.run/internal/workspace"
)

// StepsConfig is what steps on a host need. All is required save Logger.
type StepsConfig struct {
	Client    client.Client
	Namespace string
	Host      *workspace.Host
	Proc      *proc.Host
	Logs      *logs.Logs
	Store     store.Store
	Secrets   secret.Provider
	// Claims claims the keys of steps.
	Claims *Claims
	// Resources gives back what steps acquire.
	Resources *Resources
	// Containers is the container engine; nil where the host has none.
	Containers *container.Host
	// MaxProcesses is how many steps run a process at once on this host.
	MaxProcesses int
	// TenantSteps bounds how many of those a tenant has.
	TenantSteps slots.Quotas
	// Environment is what steps get of the worker's own variables, as
	// NAME=value.
	Environment []string
	// Meter hears what steps do. Defaults to one that does not.
	Meter Meter
	// Logger defaults to one that says nothing.
	Logger *zap.Logger
}

// Steps holds the activities that must run where a stage's workspace and
// processes are. It is registered on the queue of one host.
type Steps struct {
	StepsConfig

	slots *slots.Slots

	mu sync.Mutex
	// running are the attempts under way; ended the nodes that were ended
	// before their attempt began. Both by run key and node.
	running map[nodeKey]*attempt
	ended   map[nodeKey]run.Cause
}

type nodeKey struct{ runKey, node string }

// NewSteps returns the Steps of a host.
func NewSteps(cfg StepsConfig) *Steps {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Meter = meterOr(cfg.Meter)
	return &Steps{
		StepsConfig: cfg, slots: slots.New(cfg.MaxProcesses, cfg.TenantSteps.Of),
		running: map[nodeKey]*attempt{}, ended: map[nodeKey]run.Cause{},
	}
}

// enter makes an attempt findable by [Steps.End]. It reports the cause with
// which its node was ended already, if it was.
func (s *Steps) enter(a *attempt) (run.Cause, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause, ok := s.ended[a.key]; ok {
		return cause, true
	}
	s.running[a.key] = a
	return run.Cause{}, false
}

func (s *Steps) leave(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[a.key] == a {
		delete(s.running, a.key)
	}
}

// End ends the processes of steps at once: the cancel of their activities would
// reach them later. Nodes whose attempt has not begun here are remembered, as it
// may be on its way; what an earlier worker process left of them is ended.
func (s *Steps) End(ctx context.Context, in EndInput) error {
	unstick(ctx, s.Client, s.Namespace)
	var rest []string
	s.mu.Lock()
	for _, node := range in.Nodes {
		key := nodeKey{in.Owner.RunKey, node}
		if a, ok := s.running[key]; ok {
			a.stop(&stopError{kind: stopCancelled, cause: in.Cause})
			continue
		}
		s.ended[key] = in.Cause
		rest = append(rest, node)
	}
	s.mu.Unlock()
	for _, node := range rest {
		if err := s.Proc.EndNode(ctx, processNode(in.Owner.RunKey, node)); err != nil && !errors.Is(err, proc.ErrNotProved) {
			return fmt.Errorf("ending what an earlier worker left of %s: %w", node, err)
		}
	}
	return nil
}

// forget drops what is remembered of a stage's nodes: it is over, or begins
// anew.
func (s *Steps) forget(owner Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.ended {
		if key.runKey == owner.RunKey && run.Within(key.node, owner.Node) {
			delete(s.ended, key)
		}
	}
}

// processNode is the name under which the processes of a node are found.
func processNode(runKey, node string) string { return runKey + "/" + node }
