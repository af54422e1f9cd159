package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// ServiceEnd is how a service ended that nobody has asked to.
type ServiceEnd struct {
	Name string
	// ExitCode is that of its program; Removed says that its container is gone.
	ExitCode int
	Removed  bool
	// Output is the end of what it has written.
	Output string
}

// String says it in words, without the output.
func (e ServiceEnd) String() string {
	if e.Removed {
		return fmt.Sprintf("the container of the service %s was removed", e.Name)
	}
	return fmt.Sprintf("the service %s ended with exit code %d", e.Name, e.ExitCode)
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
		end.ExitCode, end.Output = st.ExitCode, h.tail(ctx, name)
		return end, true, nil
	}
	return end, false, nil
}
