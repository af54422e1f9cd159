package activities_test

import (
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/container"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/testkit/engine"
)

// patience bounds what is broken only.
const patience = 2 * time.Minute

// endsWhenCalled is a service that ends with a code as soon as somebody has called.
func endsWhenCalled(name, code string) spec.Service {
	return spec.Service{
		Name: name, Image: spec.Image{Name: engine.Image, Pull: spec.PullNever}, Secrets: []string{"TOKEN"},
		Command: []string{"/bin/sh", "-c", `nc -l -p 5432; echo "no disk for $TOKEN"; exit ` + code},
		Limits:  &spec.ServiceLimits{Memory: 64 << 20, PIDs: 50, CPUs: 0.5},
		Health:  spec.Health{Command: "netstat -ltn | grep -q :5432", Interval: 100 * time.Millisecond, Timeout: patience},
	}
}

// TestServicesThatEnd are noted by every step that runs then. Those with a check end
// what needs them.
func TestServicesThatEnd(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	e := h.contained(t, container.Policy{})
	defer func() {
		_, err := h.env.ExecuteActivity(h.steps.Release, h.owner)
		require.NoError(t, err)
	}()
	got, err := h.env.ExecuteActivity(h.steps.StartServices, activities.ServicesInput{
		Owner: h.owner, Services: []spec.Service{endsWhenCalled("db", "4"), endsWhenCalled("job", "0")},
	})
	require.NoError(t, err)
	var addresses []activities.ServiceAddress
	require.NoError(t, got.Get(&addresses))
	with := func(body, checked bool, services ...activities.ServiceAddress) func(*activities.StepInput) {
		return func(in *activities.StepInput) {
			in.Body, in.Services = body, nil
			for _, s := range services {
				s.Checked = checked
				in.Services = append(in.Services, s)
			}
		}
	}
	require.True(t, addresses[0].Checked)
	for _, name := range h.containers(t.Context(), t, e) {
		got, err := e.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 64<<20, got.Container.HostConfig.Memory)
		require.EqualValues(t, 500_000_000, got.Container.HostConfig.NanoCPUs)
		require.EqualValues(t, 50, *got.Container.HostConfig.PidsLimit)
	}

	res, err := h.run(t, h.input("true", with(true, true, addresses...)))
	require.NoError(t, err)
	require.Empty(t, res.Services, "they live")
	_, err = h.run(t, h.input("for s in db job; do nc $s 5432 </dev/null; done", in(), with(false, true, addresses...)))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		running, err := e.ContainerList(t.Context(), client.ContainerListOptions{
			Filters: make(client.Filters).Add("label", "belay.run/host="+h.steps.Host.ID()),
		})
		return err == nil && len(running.Items) == 0
	}, patience, 50*time.Millisecond)

	const ended = "the service db ended with exit code 4"
	res, err = h.run(t, h.input("sleep 600", with(true, true, addresses...)))
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.ErrorContains(t, err, ended)
	require.Contains(t, res.Services, ended+"; the last it wrote: no disk for ***")
	require.Contains(t, h.output(t), ended+"; the last it wrote: no disk for ***")

	for name, edit := range map[string]func(*activities.StepInput){
		"has no check":            with(true, false, addresses[0]),
		"what follows goes on":    with(false, true, addresses[0]),
		"it has done what it had": with(true, true, addresses[1]),
	} {
		res, err = h.run(t, h.input("true", edit))
		require.NoError(t, err, name)
		require.Len(t, res.Services, 1, name)
	}

	require.NoError(t, h.steps.Containers.RemoveServices(t.Context(), "k1", "build"))
	_, err = h.run(t, h.input("sleep 600", with(true, true, addresses[1])))
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.ErrorContains(t, err, "the container of the service job was removed")
}
