package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
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

func (h *Host) startService(ctx context.Context, stage Owner, s Service, net string) error {
	if err := fetch(ctx, h.api, s.Image, s.Login, io.Discard); err != nil {
		return err
	}
	stage.Node = stage.Stage + "/" + s.Name
	ports, bindings := publish(s.Ports)
	init := true
	made, err := h.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: h.serviceName(stage, s.Name),
		Config: &container.Config{
			Image: s.Image.Name, Cmd: s.Command, Env: s.Env, Labels: h.labels(stage, kindService),
			ExposedPorts: ports, Healthcheck: s.Health.config(),
		},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(net), PortBindings: bindings, Resources: s.Limits.resources(), Init: &init,
		},
		NetworkingConfig: &network.NetworkingConfig{
			EndpointsConfig: map[string]*network.EndpointSettings{net: {Aliases: []string{s.Name}}},
		},
	})
	if err != nil {
		return fmt.Errorf("creating the container: %w", err)
	}
	if _, err := h.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return fmt.Errorf("starting the container: %w", err)
	}
	return nil
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

// config is the check in the engine's words. One that is not ready yet is not
// unhealthy: the engine begins with counting failures after the timeout.
func (h Health) config() *container.HealthConfig {
	if h.Command == "" {
		return nil
	}
	return &container.HealthConfig{
		Test: []string{"CMD-SHELL", h.Command}, Interval: h.Interval, Timeout: max(h.Interval, time.Second),
		StartPeriod: h.Timeout, Retries: 1,
	}
}

// ready waits until a service is ready and returns where it is reached.
func (h *Host) ready(ctx context.Context, stage Owner, s Service) (Address, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Health.Timeout,
		fmt.Errorf("its timeout of %s is over", s.Health.Timeout))
	defer cancel()
	name := h.serviceName(stage, s.Name)
	for {
		got, err := h.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		if err != nil && ctx.Err() == nil {
			return Address{}, fmt.Errorf("looking at the service %s: %w", s.Name, explained(err))
		}
		ok, why := health(got.Container.State)
		switch {
		case ok:
			return h.address(s, got.Container)
		case why != "":
			return Address{}, h.notReady(ctx, name, s, why)
		}
		if err := pause(ctx, look); err != nil {
			return Address{}, h.notReady(ctx, name, s, err.Error())
		}
	}
}

// health says whether a container is ready, or why it never will be.
func health(st *container.State) (ready bool, why string) {
	switch {
	case st == nil:
		return false, ""
	case st.Status == container.StateExited || st.Status == container.StateDead:
		return false, fmt.Sprintf("it ended with exit code %d", st.ExitCode)
	case !st.Running:
		return false, ""
	case st.Health == nil || st.Health.Status == container.NoHealthcheck || st.Health.Status == "":
		return true, ""
	case st.Health.Status == container.Unhealthy:
		return false, "its health check fails"
	}
	return st.Health.Status == container.Healthy, ""
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

// notReady is the error of a service with the end of what it wrote, or that of
// the context where the stage is to end.
func (h *Host) notReady(ctx context.Context, name string, s Service, why string) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerBound)
	defer cancel()
	return &NotReadyError{Name: s.Name, Why: why, Output: h.tail(ctx, name)}
}

// tail is the end of what a container has written, as far as it can be had.
func (h *Host) tail(ctx context.Context, name string) string {
	const lines, most = "10", 2000
	stream, err := h.api.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: lines})
	if err != nil {
		return ""
	}
	var b strings.Builder
	_, err = stdcopy.StdCopy(&b, &b, io.LimitReader(stream, 1<<20))
	if err = errors.Join(err, stream.Close()); err != nil {
		h.opts.Log.Debug("could not read all that a service wrote")
	}
	text := strings.TrimSpace(b.String())
	return strings.ToValidUTF8(text[max(0, len(text)-most):], "")
}
