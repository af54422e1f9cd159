package activities

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"belay.run/internal/container"
	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// ContainerMargin is what the end of a container may take beyond the grace period
// of its step: it has to be removed, too.
const ContainerMargin = container.Margin

// order is the process of one command: the shell that runs the script, or the
// client of a container in which the shell does.
func (a *attempt) order(i int, script string, env []string) (proc.Job, error) {
	job := proc.Job{
		Node: processNode(a.key.runKey, a.key.node), Argv: shellArgv(a.in.Step.Shell, script),
		Dir: a.workingDir(), Env: env, Grace: a.in.Step.GracePeriod, DeadMan: deadMan,
	}
	if a.in.Step.Container == nil {
		job.Limits, job.OnExcess = a.procLimits(), a.onExcess()
		return job, nil
	}
	in, err := a.containerJob(i, job)
	if err != nil {
		return job, err
	}
	if err := a.holdContainer(in.Name); err != nil {
		return job, err
	}
	// The client needs nothing of the step's environment: it is in its job.
	job.Env, job.Grace = nil, job.Grace+container.Margin
	if job.Argv, err = in.Command(a.jobFile()); err != nil {
		return job, &retryableError{err}
	}
	return job, nil
}

func (a *attempt) workingDir() string {
	return filepath.Join(a.dirs.Workspace, filepath.FromSlash(a.in.Step.WorkingDir))
}

// jobFile is where the client of a container finds its job, and reportFile what
// it has to say in the end. Both lie where the container does not see them.
func (a *attempt) jobFile() string    { return a.temp + ".job" }
func (a *attempt) reportFile() string { return a.temp + ".report" }

// containerJob is the container in which a command runs.
func (a *attempt) containerJob(i int, order proc.Job) (container.Job, error) {
	c := a.in.Step.Container
	engine, err := a.steps.engine()
	if err != nil {
		return container.Job{}, err
	}
	if err := spec.CheckImage(c.Image.Name); err != nil {
		return container.Job{}, failed(run.TriggerInvalid, "image: %v", err)
	}
	// Else the engine would make the folder, as root.
	if info, err := os.Stat(order.Dir); err != nil || !info.IsDir() {
		return container.Job{}, failed(run.TriggerInvalid, "working_dir: the workspace has no folder %s", a.in.Step.WorkingDir)
	}
	asked := make([]container.Mount, len(c.Mounts))
	for j, m := range c.Mounts {
		asked[j] = container.Mount(m)
	}
	if err := engine.Allows(asked, c.Privileged); err != nil {
		return container.Job{}, failed(run.TriggerInvalid, "image: %v", err)
	}
	job := engine.Job(a.containerOwner(), a.number, i)
	if job.Login, err = a.login(engine, c.Image); err != nil {
		return job, err
	}
	job.Image = container.Image{Name: c.Image.Name, Pull: c.Image.Pull}
	job.Argv = slices.Concat(c.Entrypoint, order.Argv)
	job.Env, job.Dir, job.User, job.Privileged = a.inContainer(order.Env), order.Dir, c.User, c.Privileged
	job.Mounts = append(a.ownMounts(order.Env), asked...)
	job.Network = a.network(engine, c)
	job.Limits = container.Limits{CPUs: c.CPUs, Memory: a.limits().Memory, PIDs: int64(a.limits().PIDs)}
	job.Grace, job.Report = a.in.Step.GracePeriod, a.reportFile()
	return job, nil
}

func (a *attempt) containerOwner() container.Owner {
	return container.Owner{RunKey: a.key.runKey, Stage: a.in.Owner.Node, WorkflowID: a.in.Owner.WorkflowID, Node: a.key.node}
}

// ownMounts are the directories that every step has, at the paths that they have
// on the host: so steps with an image and steps without one can work in one
// workspace, whatever they write paths into.
func (a *attempt) ownMounts(env []string) []container.Mount {
	dirs := []string{a.dirs.Workspace, a.dirs.Home, a.steps.Host.Cache(), a.temp}
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, resource.EnvDir) {
			dirs = append(dirs, value)
		}
	}
	mounts := make([]container.Mount, len(dirs))
	for i, dir := range dirs {
		mounts[i] = container.Mount{Source: dir, Target: dir}
	}
	return mounts
}

func (a *attempt) network(engine *container.Host, c *spec.Container) string {
	if c.Network == "" && len(a.in.Services) > 0 {
		return engine.Network(a.key.runKey, a.in.Owner.Node)
	}
	return c.Network
}

// login is how the engine logs in to the image's registry: as the file says, or
// as the host knows.
func (a *attempt) login(engine *container.Host, image spec.Image) (string, error) {
	return a.steps.login(a.ctx, engine, image, a.values)
}

// holdContainer writes down the container before there is one.
func (a *attempt) holdContainer(name string) error {
	h := &holding{kind: a.steps.Containers, entry: resource.Entry{
		Owner: a.in.Holder, Kind: resource.KindContainer, Name: name, Scope: resource.ScopeStep,
		Host: a.steps.Host.ID(), Queue: a.steps.Host.Queue(), Label: a.in.Label,
	}}
	h.entry.Node, h.entry.Attempt = a.key.node, a.number
	h.unkeep = a.steps.Containers.Use(name)
	if err := a.steps.Resources.book.Note(a.ctx, &h.entry, run.ResourceHeld); err != nil {
		h.unkeep()
		return a.stopped(&retryableError{err})
	}
	h.held = true
	a.hold(h)
	a.setPhase(PhaseRunning) // after the release of the last command's
	return nil
}

// conclude says what the end of a command's process means for the step.
func (a *attempt) conclude(res proc.Result) error {
	if a.in.Step.Container == nil {
		return a.verdict(res)
	}
	res.CPU, res.MaxRSS = 0, 0 // the client's, not the container's
	return a.containerEnd(a.verdict(res))
}

// containerEnd is what the client of a container has to say beyond its exit code,
// which meant end.
func (a *attempt) containerEnd(end error) error {
	report, err := container.ReadReport(a.reportFile())
	if err != nil {
		a.note("%v", err)
	}
	a.res.Notes = append(a.res.Notes, report.Notes...)
	// A client that was killed at once has not read it.
	if err := os.Remove(a.jobFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		a.note("the job of a container was not removed; it goes with the workspace: %v", err)
	}
	if err := a.stopped(nil); err != nil || report.Fault == "" {
		return end
	}
	switch report.Fault {
	case container.FaultMemory:
		return failed(run.TriggerLimitExceeded, "memory: %s", report.Message)
	case container.FaultInvalid:
		return failed(run.TriggerInvalid, "image: %s", report.Message)
	case container.FaultUnavailable:
	}
	return &retryableError{failed(run.TriggerDependencyUnavailable, "%s", report.Message)}
}

// inContainer is an environment without what is true on the host only, and with
// what the supervisor of a process adds.
func (a *attempt) inContainer(env []string) []string {
	inside := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, own := a.in.Env[name]
		return hostOnly(name) && !own
	})
	// Not BELAY_HOST: it would make a process of the host of what is none.
	return append(inside, proc.EnvNode+"="+processNode(a.key.runKey, a.key.node))
}

// secretNames are the secrets that the attempt needs: those of the step, and the
// password for the registry of its image.
func (a *attempt) secretNames() []string {
	names := slices.Clone(a.in.Step.Secrets)
	if c := a.in.Step.Container; c != nil && c.Image.Login != nil && !slices.Contains(names, c.Image.Login.Password) {
		names = append(names, c.Image.Login.Password)
	}
	return names
}

// hostOnly are the variables of the worker that say how things are on the host,
// and would be wrong in a container. Its own are those of its image.
func hostOnly(name string) bool {
	return slices.Contains([]string{"PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "SSL_CERT_FILE", "SSL_CERT_DIR"}, name) ||
		strings.HasPrefix(name, "LC_")
}

// engine is the container engine of this host.
func (s *Steps) engine() (*container.Host, error) {
	if s.Containers == nil {
		return nil, failed(run.TriggerDependencyUnavailable,
			"host %s has no container engine: set container_engine of its worker, or send the stage to another by runs_on", s.Host.ID())
	}
	return s.Containers, nil
}

// serviceVars tell a step where the services of its stage are: by their names in
// a container of the same network, else on this machine.
func (a *attempt) serviceVars() map[string]string {
	c := a.in.Step.Container
	inside := c != nil && c.Network == ""
	vars := map[string]string{}
	for _, s := range a.in.Services {
		prefix := "BELAY_SERVICE_" + resource.EnvName(s.Name)
		host, ports := "127.0.0.1", s.Published
		if inside {
			host, ports = s.Name, s.Ports
		}
		vars[prefix+"_HOST"] = host
		for i, port := range ports {
			if i == 0 {
				vars[prefix+"_PORT"] = strconv.Itoa(port)
			}
			vars[fmt.Sprintf("%s_PORT_%d", prefix, s.Ports[i])] = strconv.Itoa(port)
		}
	}
	return vars
}
