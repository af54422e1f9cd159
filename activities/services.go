package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"belay.run/internal/container"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/spec"
	"belay.run/internal/workspace"
)

// ServicesInput names the services of a stage with every expression evaluated.
type ServicesInput struct {
	Owner    Owner          `json:"owner"`
	Services []spec.Service `json:"services"`
}

// ServiceAddress is where a service is reached.
type ServiceAddress = container.Address

// StartServices starts the services of a stage beside its workspace and waits
// until they are ready. A second call begins them anew. Release removes them.
func (s *Steps) StartServices(ctx context.Context, in ServicesInput) ([]ServiceAddress, error) {
	unstick(ctx, s.Client, s.Namespace)
	defer beating(ctx)()
	// Until the secrets are read there is nothing to mask, which nil does.
	var mask *secret.Masker
	out, err := s.startServices(ctx, in, &mask)
	if err == nil {
		return out, nil
	}
	cause := run.Cause{Trigger: run.TriggerDependencyUnavailable, Source: in.Owner.Node, Message: mask.String(err.Error())}
	if step, ok := errors.AsType[*stepError](err); ok {
		cause.Trigger, cause.Message = step.cause.Trigger, mask.String(step.cause.Message)
	}
	if errors.Is(err, container.ErrUnavailable) {
		return nil, failRetryable(cause)
	}
	return nil, fail(cause)
}

func (s *Steps) startServices(ctx context.Context, in ServicesInput, mask **secret.Masker) ([]ServiceAddress, error) {
	engine, err := s.engine()
	if err != nil {
		return nil, err
	}
	values, err := loadSecrets(ctx, s.Secrets, serviceSecrets(in.Services))
	if err != nil {
		return nil, err
	}
	if *mask, err = secret.NewMasker(values...); err != nil {
		return nil, failed(run.TriggerInvalid, "%v", err)
	}
	if err := s.markContainers(in.Owner); err != nil {
		return nil, err
	}
	services := make([]container.Service, len(in.Services))
	for i, service := range in.Services {
		if services[i], err = s.service(ctx, engine, service, values); err != nil {
			return nil, err
		}
	}
	stage := container.Owner{RunKey: in.Owner.RunKey, Stage: in.Owner.Node, WorkflowID: in.Owner.WorkflowID}
	out, err := engine.StartServices(ctx, stage, services)
	if fault, ok := errors.AsType[*container.Error](err); ok && fault.Fault == container.FaultInvalid {
		return nil, failed(run.TriggerInvalid, "%v", err)
	}
	for i := range out {
		out[i].Checked, out[i].Secrets = in.Services[i].Health.Command != "", serviceSecrets(in.Services)
	}
	return out, err
}

// service is a service in the engine's words.
func (s *Steps) service(ctx context.Context, engine *container.Host, in spec.Service, values []secret.Value) (container.Service, error) {
	if err := spec.CheckImage(in.Image.Name); err != nil {
		return container.Service{}, failed(run.TriggerInvalid, "the service %s: %v", in.Name, err)
	}
	login, err := s.login(ctx, engine, in.Image, values)
	if err != nil {
		return container.Service{}, err
	}
	env := environ{}
	env.add(in.Env)
	for _, v := range values {
		if slices.Contains(in.Secrets, v.Name()) {
			env[v.Name()] = v.Reveal()
		}
	}
	var limits container.Limits
	if l := in.Limits; l != nil {
		limits = container.Limits{CPUs: l.CPUs, Memory: l.Memory, PIDs: int64(l.PIDs)}
	}
	return container.Service{
		Limits: limits,
		Name:   in.Name, Image: container.Image{Name: in.Image.Name, Pull: in.Image.Pull}, Login: login,
		Command: in.Command, Env: env.list(), Ports: in.Ports, Health: container.Health(in.Health),
	}, nil
}

// login is how the engine logs in to the registry of an image: as the file says,
// with a password among values, or as the host knows.
func (s *Steps) login(ctx context.Context, engine *container.Host, image spec.Image, values []secret.Value) (string, error) {
	if image.Login == nil {
		text, err := engine.Login(ctx, image.Name)
		if err != nil {
			return "", &retryableError{failed(run.TriggerDependencyUnavailable, "%v", err)}
		}
		return text, nil
	}
	i := slices.IndexFunc(values, func(v secret.Value) bool { return v.Name() == image.Login.Password })
	if i < 0 {
		return "", failed(run.TriggerInvalid, "the password of %s was not read", image.Name)
	}
	text, err := container.Login(image.Name, image.Login.Username, values[i].Reveal())
	if err != nil {
		return "", failed(run.TriggerInvalid, "%v", err)
	}
	return text, nil
}

// serviceSecrets are all secrets that services and the logins of their images
// need.
func serviceSecrets(services []spec.Service) []string {
	names := map[string]bool{}
	for _, s := range services {
		for _, name := range s.Secrets {
			names[name] = true
		}
		if s.Image.Login != nil {
			names[s.Image.Login.Password] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// containersMark is a file beside a workspace: its stage has had containers.
const containersMark = "containers"

// markContainers notes, before there is one, that a stage has containers: to
// release any other an engine that is away is not waited for.
func (s *Steps) markContainers(owner Owner) error {
	root := s.Host.Dirs(owner.RunKey, owner.Node).Root
	if err := os.WriteFile(filepath.Join(root, containersMark), nil, 0o600); err != nil {
		return fmt.Errorf("noting that the stage has containers: %w", err)
	}
	return nil
}

// RemoveContainers removes whatever containers and networks of a stage are left on
// a host, which has no engine where that is nil. Its workspace goes after that: as
// long as it is there, it stands for them too.
func RemoveContainers(ctx context.Context, host *workspace.Host, engine *container.Host, runKey, node string) error {
	dirs := host.Dirs(runKey, node)
	_, err := os.Stat(filepath.Join(dirs.Root, containersMark))
	if _, gone := os.Stat(dirs.Workspace); errors.Is(err, os.ErrNotExist) && gone == nil || engine == nil {
		return nil // a step that removed its workspace may have removed the mark with it
	}
	if err := engine.RemoveNode(ctx, runKey, node); err != nil {
		return fmt.Errorf("removing the containers of stage %s: %w", node, err)
	}
	return nil
}
