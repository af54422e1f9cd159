package container

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
)

// Service is a container that runs beside the steps of a stage: a database, a
// cache.
type Service struct {
	// Name is its host name in the network of the stage.
	Name  string
	Image Image
	Login string
	// Command stands for the arguments that the image's own program gets; empty
	// leaves those of the image.
	Command []string
	Env     []string
	Ports   []int
	Limits  Limits
	Health  Health
}

// Health is how one finds out that a service is ready. With no command the
// image's own check is used, and where it has none the service is ready when it
// runs.
type Health struct {
	Command  string
	Interval time.Duration
	// Timeout is how long it may take until it is ready.
	Timeout time.Duration
}

// Address is where a service is reached.
type Address struct {
	Name string `json:"name"`
	// Ports are those of the container, and Published the ports of this machine,
	// on its loopback interface, that lead there.
	Ports     []int `json:"ports,omitempty"`
	Published []int `json:"published,omitempty"`
	// Checked: the file has a health check for it. Secrets are the names of those
	// that it may have written somewhere.
	Checked bool     `json:"checked,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
}

// NotReadyError says that a service ended, or did not get ready.
type NotReadyError struct {
	Name, Why string
	// Output is the end of what it has written.
	Output string
}

func (e *NotReadyError) Error() string {
	s := fmt.Sprintf("the service %s is not ready: %s", e.Name, e.Why)
	if e.Output != "" {
		s += "; the last it wrote: " + e.Output
	}
	return s
}

// StartServices starts the services of a stage in a network of its own and waits
// until all are ready. What an earlier try left is removed first. After an error
// the caller removes what there is, as it does in the end.
func (h *Host) StartServices(ctx context.Context, stage Owner, services []Service) ([]Address, error) {
	if err := h.Ping(ctx); err != nil {
		return nil, err
	}
	if err := h.RemoveServices(ctx, stage.RunKey, stage.Stage); err != nil {
		return nil, err
	}
	net := h.networkName(stage.RunKey, stage.Stage)
	stage.Node = stage.Stage
	_, err := h.api.NetworkCreate(ctx, net, client.NetworkCreateOptions{Driver: "bridge", Labels: h.labels(stage, kindNetwork)})
	if err != nil {
		return nil, fmt.Errorf("creating the network of the services: %w", explained(err))
	}
	for _, s := range services {
		if err := h.startService(ctx, stage, s, net); err != nil {
			return nil, fmt.Errorf("the service %s: %w", s.Name, explained(err))
		}
	}
	out := make([]Address, len(services))
	for i, s := range services {
		if out[i], err = h.ready(ctx, stage, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// RemoveServices removes the services of a stage and their network.
func (h *Host) RemoveServices(ctx context.Context, runKey, stage string) error {
	return h.removeAll(ctx, func(f found) bool { return f.kind != kindStep && f.owner.Stage == stage }, labelRun+"="+runKey)
}

// Network is the network of a stage that has services.
func (h *Host) Network(runKey, stage string) string { return h.networkName(runKey, stage) }

func (h *Host) serviceName(stage Owner, name string) string {
	return h.name(stage.RunKey, stage.Stage+"/"+name)
}

// startService starts the container of a service, with a first process that passes
// signals on where the engine has one: Docker says only at the start that it has
// none.
func (h *Host) startService(ctx context.Context, stage Owner, s Service, net string) error {
	if err := fetch(ctx, h.api, s.Image, s.Login, io.Discard); err != nil {
		return err
	}
	o := h.serviceOptions(stage, s, net)
	err := h.launch(ctx, o, true)
	if !noInit(err) {
		return err
	}
	if err := remove(ctx, h.api, o.Name); err != nil {
		return err
	}
	return h.launch(ctx, o, false)
}

func (h *Host) launch(ctx context.Context, o client.ContainerCreateOptions, init bool) error {
	o.HostConfig.Init = &init
	made, err := h.api.ContainerCreate(ctx, o)
	if err != nil {
		return fmt.Errorf("creating the container: %w", err)
	}
	if _, err := h.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("starting the container: %w", err)
	}
	return nil
}

// serviceOptions is the service in the engine's words.
func (h *Host) serviceOptions(stage Owner, s Service, net string) client.ContainerCreateOptions {
	stage.Node = stage.Stage + "/" + s.Name
	ports, bindings := publish(s.Ports)
	return client.ContainerCreateOptions{
		Name: h.serviceName(stage, s.Name),
		Config: &container.Config{
			Image: s.Image.Name, Cmd: s.Command, Env: s.Env, Labels: h.labels(stage, kindService),
			ExposedPorts: ports, Healthcheck: s.Health.config(),
		},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(net), PortBindings: bindings, Resources: s.Limits.resources(),
		},
		NetworkingConfig: &network.NetworkingConfig{
			EndpointsConfig: map[string]*network.EndpointSettings{net: {Aliases: []string{s.Name}}},
		},
	}
}

// publish makes ports reachable for what runs on this machine itself, each at a
// port that the engine chooses.
func publish(ports []int) (network.PortSet, network.PortMap) {
	set, bindings := network.PortSet{}, network.PortMap{}
	for _, p := range ports {
		port, ok := network.PortFrom(uint16(p), network.TCP)
		if !ok {
			continue // the file's reader has seen to that
		}
		set[port] = struct{}{}
		bindings[port] = []network.PortBinding{{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1})}}
	}
	return set, bindings
}

func (h *Host) address(s Service, c container.InspectResponse) (Address, error) {
	a := Address{Name: s.Name, Ports: s.Ports}
	if c.NetworkSettings == nil {
		return a, nil
	}
	for _, p := range s.Ports {
		port, _ := network.PortFrom(uint16(p), network.TCP)
		var found int
		for _, b := range c.NetworkSettings.Ports[port] {
			if n, err := strconv.Atoi(b.HostPort); err == nil {
				found = n
			}
		}
		if found == 0 {
			return a, fmt.Errorf("the service %s: the engine has not published port %d", s.Name, p)
		}
		a.Published = append(a.Published, found)
	}
	return a, nil
}
