package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// startServices starts the stage's services beside its workspace. The cause it
// returns is nil where all are ready.
func (s *stage) startServices(ctx workflow.Context) *run.Cause {
	s.services = nil
	if len(s.spec.Services) == 0 {
		return nil
	}
	services, err := s.evaluateServices()
	if err != nil {
		return &run.Cause{Trigger: run.TriggerInvalid, Source: s.doc.Node, Message: err.Error()}
	}
	for i := range services {
		s.doc.Resources = append(s.doc.Resources, run.Resource{
			Kind: resource.KindContainer, Name: services[i].Name, State: run.ResourceHeld,
		})
	}
	s.wait(ctx, "services", s.host.Host)
	defer func() { s.doc.WaitingFor = nil }()
	var steps *activities.Steps
	opts := prepareOptions(s.host.Queue, s.spec.Timeout, "starts the services")
	err = s.onHost(ctx, opts, nil, steps.StartServices, activities.ServicesInput{Owner: s.owner, Services: services}, &s.services)
	if err != nil {
		return s.activityCause(err)
	}
	return nil
}

// evaluateServices are the services with every expression evaluated, and with the
// variables of the file that each is given.
func (s *stage) evaluateServices() ([]spec.Service, error) {
	scope := s.scope()
	out := make([]spec.Service, len(s.spec.Services))
	for i, service := range s.spec.Services {
		env, err := evaluate(service.Env, scope)
		if err != nil {
			return nil, fmt.Errorf("the service %s: %w", service.Name, err)
		}
		image, err := expr.String(service.Image.Name, scope)
		if err != nil {
			return nil, fmt.Errorf("the service %s: image: %w", service.Name, err)
		}
		service.Env, service.Image.Name = env, image
		out[i] = service
	}
	return out, nil
}

// inContainer evaluates what of a step's container may hold expressions. The
// plan's own is not changed.
func inContainer(c *spec.Container, scope expr.Scope) (*spec.Container, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // none is what most steps have
	}
	out := *c
	var err error
	if out.Image.Name, err = expr.String(c.Image.Name, scope); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return &out, nil
}
