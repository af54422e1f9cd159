package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"belay.run/internal/pause"
)

// ServiceEnd is how a service ended that nobody has asked to.
type ServiceEnd struct {
	Name string
	// ExitCode is that of its program; Removed says that its container is gone.
	ExitCode int
	Removed  bool
	// Memory says that it was killed as it went over its limit of memory.
	Memory bool
	// Output is the end of what it has written.
	Output string
}

// String says it in words, without the output.
func (e ServiceEnd) String() string {
	if e.Removed {
		return fmt.Sprintf("the container of the service %s was removed", e.Name)
	}
	s := fmt.Sprintf("the service %s ended with exit code %d", e.Name, e.ExitCode)
	if e.Memory {
		s += ", killed as it went over its limit of memory"
	}
	return s
}

// Well reports whether it ended as a program does that has done its work.
func (e ServiceEnd) Well() bool { return !e.Removed && e.ExitCode == 0 }

// ServiceEnd looks whether a service of a stage has ended, and how.
func (h *Host) ServiceEnd(ctx context.Context, runKey, stage, service string) (end ServiceEnd, ended bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	end.Name = service
	name := h.serviceName(Owner{RunKey: runKey, Stage: stage}, service)
	got, err := h.api.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		end.Removed = true
		return end, true, nil
	case err != nil:
		return end, false, fmt.Errorf("looking at the service %s: %w", service, explained(err))
	}
	switch st := got.Container.State; {
	case st == nil:
		return end, false, nil
	case st.Status == container.StateRemoving:
		end.Removed = true
		return end, true, nil
	case st.Status == container.StateExited, st.Status == container.StateDead:
		end.ExitCode, end.Memory, end.Output = st.ExitCode, h.overMemory(ctx, got.Container), h.tail(ctx, name)
		return end, true, nil
	}
	return end, false, nil
}

// overMemory reports whether a container that has ended went over its limit of
// memory. The engine may hear of that after the end.
func (h *Host) overMemory(ctx context.Context, c container.InspectResponse) bool {
	if c.HostConfig == nil || c.HostConfig.Memory == 0 {
		return false
	}
	for i := 0; ; i++ {
		if c.State != nil && c.State.OOMKilled {
			return true
		}
		if c.State == nil || c.State.ExitCode != exitKilled || i == lateLooks || pause.For(ctx, look) != nil {
			return false
		}
		got, err := h.api.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		if err != nil {
			return false
		}
		c = got.Container
	}
}

// lateLooks is how often one looks whether a container that was killed was so for
// its memory.
const lateLooks = 10
