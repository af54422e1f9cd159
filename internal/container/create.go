package container

import (
	"math"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
)

// noLog keeps the engine from writing the output to its own disk: it is
// streamed, and may hold secrets before they are masked.
const noLog = "none"

// createOptions is the job in the engine's words. The script is what runs: what
// the image would start by itself is not wanted. With init, there is a first
// process that passes signals on to all others, as a shell in its place would
// ignore them.
func (j Job) createOptions(user string, init bool) client.ContainerCreateOptions {
	env := j.Env
	if init {
		env = append([]string{"TINI_KILL_PROCESS_GROUP=1"}, env...)
	}
	return client.ContainerCreateOptions{
		Name: j.Name,
		Config: &container.Config{
			Image: j.Image.Name, Entrypoint: j.Argv, Env: env, WorkingDir: j.Dir, User: user,
			Labels: j.Labels, AttachStdout: true, AttachStderr: true,
		},
		HostConfig: &container.HostConfig{
			LogConfig:   container.LogConfig{Type: noLog},
			NetworkMode: container.NetworkMode(j.Network),
			Privileged:  j.Privileged,
			Mounts:      binds(j.Mounts),
			Resources:   j.Limits.resources(),
			Init:        &init,
		},
	}
}

func binds(mounts []Mount) []mount.Mount {
	out := make([]mount.Mount, len(mounts))
	for i, m := range mounts {
		out[i] = mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
	}
	return out
}

func (l Limits) resources() container.Resources {
	r := container.Resources{
		NanoCPUs: int64(math.Round(l.CPUs * 1e9)),
		// Swap is memory too: without it a limit would only make things slow.
		Memory: l.Memory, MemorySwap: l.Memory,
	}
	if l.PIDs > 0 {
		r.PidsLimit = &l.PIDs
	}
	return r
}
