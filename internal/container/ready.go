package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"belay.run/internal/pause"
)

// config leaves the check of the image to the engine, unless the file has one of
// its own: that is asked for here, as Podman does none without systemd.
func (h Health) config() *container.HealthConfig {
	if h.Command == "" {
		return nil
	}
	return &container.HealthConfig{Test: []string{"NONE"}}
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
		if why != "" {
			return Address{}, h.notReady(ctx, name, s, why)
		}
		wait := look
		if ok && s.Health.Command != "" {
			ok, wait = h.probe(ctx, got.Container.ID, s.Health.Command), s.Health.Interval
		}
		if ok {
			return h.address(s, got.Container)
		}
		if err := pause.For(ctx, wait); err != nil {
			return Address{}, h.notReady(ctx, name, s, err.Error())
		}
	}
}

// probe runs a check in a service and reports whether it ended with 0. One that
// cannot be run, as in a container that is about to end, is one that failed.
func (h *Host) probe(ctx context.Context, id, command string) bool {
	made, err := h.api.ExecCreate(ctx, id, client.ExecCreateOptions{
		Cmd: []string{"/bin/sh", "-c", command}, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return false
	}
	// Its output tells nothing but its end: Podman does not learn of the end of
	// a check that nobody is attached to.
	out, err := h.api.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, out.Close)()
	// A stream that breaks ends as a whole one: the check says how it went.
	_, _ = io.Copy(io.Discard, out.Reader)
	out.Close()
	for {
		got, err := h.api.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err != nil || !got.Running {
			return err == nil && got.ExitCode == 0
		}
		if pause.For(ctx, look) != nil {
			return false
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
