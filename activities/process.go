package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"belay.run/internal/proc"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/tracing"
)

// commands runs the commands of the step one after the other, each as a process
// tree of its own, within the step's timeout, which counts from here.
func (a *attempt) commands(env []string) error {
	clock := time.AfterFunc(a.in.Step.Timeout, func() {
		a.stop(&stopError{stopTimeout, run.Cause{
			Trigger: run.TriggerStepTimeout, Message: fmt.Sprintf("the step's timeout of %s is over", a.in.Step.Timeout),
		}})
	})
	defer clock.Stop()
	lastLook, lastServices := a.watchDisk(), a.watchServices()
	for i := range a.in.Step.Run {
		if err := a.command(i, env); err != nil {
			lastLook()
			lastServices(true)
			return a.stopped(err)
		}
	}
	lastLook()
	lastServices(false)
	if err := a.stopped(nil); err != nil {
		return err
	}
	return a.readOutputs()
}

// command runs one command to its end and reports what its result means.
func (a *attempt) command(i int, env []string) error {
	cmd := a.in.Step.Run[i]
	script := a.scriptFile(i)
	if err := os.WriteFile(script, []byte(cmd.Script), 0o600); err != nil {
		return &retryableError{fmt.Errorf("writing the script: %w", err)}
	}
	defer a.releaseAll(len(a.holdings))
	order, err := a.order(i, script, env)
	if err != nil {
		return err
	}
	out, errOut := a.mask.Writer(a.log.Stdout()), a.mask.Writer(a.log.Stderr())
	order.Stdout, order.Stderr = a.metered(out), a.metered(errOut)
	if err := a.makeSure(); err != nil {
		return errors.Join(err, out.Close(), errOut.Close())
	}
	p, err := a.steps.Proc.Start(a.ctx, order)
	if err != nil {
		return a.startError(errors.Join(err, out.Close(), errOut.Close()))
	}
	a.ran = true
	if cmd.Timeout > 0 {
		clock := time.AfterFunc(cmd.Timeout, func() {
			a.stop(&stopError{stopTimeout, run.Cause{
				Trigger: run.TriggerCommandTimeout, Message: fmt.Sprintf("the timeout of %s of command %d is over", cmd.Timeout, i+1),
			}})
		})
		defer clock.Stop()
	}
	res, err := a.attend(p)
	err = errors.Join(err, out.Close(), errOut.Close())
	if errors.Is(err, proc.ErrOutput) {
		a.note("%v", err)
	} else if err != nil {
		return a.stopped(&retryableError{fmt.Errorf("running the process: %w", err)})
	}
	return a.conclude(res)
}

// startError tells a script or host that cannot run the step from a fault that
// may pass.
func (a *attempt) startError(err error) error {
	var refused *proc.StartError
	passes := errors.Is(err, proc.ErrNoResources) || errors.Is(err, proc.ErrSupervisor)
	if errors.As(err, &refused) && !passes {
		return failed(run.TriggerInvalid, "%v", err)
	}
	return a.stopped(&retryableError{fmt.Errorf("starting the process: %w", err)})
}

// attend waits for the process, and ends it when the attempt is stopped.
func (a *attempt) attend(p *proc.Process) (proc.Result, error) {
	a.mu.Lock()
	a.process = p
	a.mu.Unlock()
	release := context.AfterFunc(a.ctx, func() {
		var stop *stopError
		a.setPhase(PhaseEnding)
		if errors.As(context.Cause(a.ctx), &stop) && stop.kind.atOnce() {
			p.Kill()
			return
		}
		p.Terminate()
	})
	defer release()
	res, err := p.Wait()
	a.leaveCrowd()
	return res, err
}

// verdict says what the end of a process means for the step. What was stopped
// from outside ended because of that, whatever its exit code.
func (a *attempt) verdict(res proc.Result) error {
	before := a.computed()
	a.res.CPU += res.CPU.Seconds()
	a.res.MaxRSS = max(a.res.MaxRSS, res.MaxRSS)
	a.res.Signal = res.Signal
	if res.ExitCode >= 0 {
		code := res.ExitCode
		a.res.ExitCode = &code
	}
	if !res.Gone {
		a.notGone = res.GoneNote
		a.note("%s", res.GoneNote)
	}
	if res.Leftover > 0 {
		a.note("processes that were left running in the background and were ended: %d", res.Leftover)
	}
	if err := a.stopped(nil); err != nil {
		return err
	}
	switch {
	case res.Excess != nil:
		return &stepError{excess(*res.Excess, before)}
	case res.DeadMan:
		return failed(run.TriggerWorkerLost, "Temporal could not be reached for %s, so the step was ended", deadMan)
	case res.SupervisorLost || res.Signal != "" || res.ExitCode < 0:
		return &retryableError{failed(run.TriggerProcessCrashed, "%s", res)}
	case res.ExitCode != 0:
		return a.exitError(res)
	}
	return nil
}

// exitError is the failure of a process with a code, retryable on the codes that
// the step names, or on any where it names none.
func (a *attempt) exitError(res proc.Result) error {
	err := failed(run.TriggerExitCode, "%s", res)
	if codes := a.in.Step.Retry.ExitCodes; len(codes) == 0 || slices.Contains(codes, res.ExitCode) {
		return &retryableError{err}
	}
	return err
}

// shellArgv is the command line that runs a script file. sh and bash stop at the
// first command that fails; any other shell is a command line of its own.
func shellArgv(shell, script string) []string {
	switch shell {
	case "", "sh":
		return []string{"/bin/sh", "-e", script}
	case "bash":
		return []string{"bash", "-eo", "pipefail", script}
	}
	return append(strings.Fields(shell), script)
}

// environment is what the process sees: the worker's allowed variables, the
// step's place, its own variables, its secrets.
func (a *attempt) environment() (environ, error) {
	env := environOf(a.steps.Environment)
	env["CI"], env["HOME"], env["TMPDIR"] = "true", a.dirs.Home, a.ownTemp()
	env[tracing.EnvParent] = parentOf(a.ctx, a.key.runKey, a.key.node+"#"+strconv.Itoa(a.number))
	if _, state := tracing.Parent(a.ctx); state != "" {
		env[tracing.EnvState] = state
	}
	a.own(env)
	env["BELAY_WORKSPACE"], env["BELAY_CACHE"] = a.dirs.Workspace, a.steps.Host.Cache()
	env["BELAY_OUTPUT"] = a.outputFile()
	values, err := a.secrets()
	if err != nil {
		return nil, err
	}
	env.add(values)
	return env, nil
}

// own are the step's own variables: those of the file, of its place, and of what
// it holds.
func (a *attempt) own(env environ) {
	env.add(a.in.Env)
	env.add(a.in.Vars)
	for _, vars := range a.lent {
		env.add(vars)
	}
	env["BELAY_ATTEMPT"] = strconv.Itoa(a.number)
	env.add(a.serviceVars())
	a.once(env)
}

// secrets reads the secrets that the step lists, at the moment of use.
func (a *attempt) secrets() (map[string]string, error) {
	values, err := loadSecrets(a.ctx, a.steps.Secrets, a.secretNames())
	if err != nil {
		return nil, err
	}
	a.values = slices.Concat(values, a.issued)
	if a.mask, err = secret.NewMasker(a.values...); err != nil {
		return nil, failed(run.TriggerInvalid, "%v", err)
	}
	out := make(map[string]string, len(a.values))
	for _, v := range values {
		if slices.Contains(a.in.Step.Secrets, v.Name()) {
			out[v.Name()] = v.Reveal()
		}
	}
	for _, v := range a.issued {
		out[v.Name()] = v.Reveal()
	}
	return out, nil
}

// loadSecrets reads secrets, or says what their want means for who needs them.
func loadSecrets(ctx context.Context, from secret.Provider, names []string) ([]secret.Value, error) {
	values, err := secret.Load(ctx, from, names)
	if errors.Is(err, secret.ErrNotFound) {
		return nil, failed(run.TriggerInvalid, "%v", err)
	}
	if err != nil {
		return nil, &retryableError{failed(run.TriggerDependencyUnavailable, "%v", err)}
	}
	return values, nil
}

// environ is an environment by name.
type environ map[string]string

// environOf is an environment that is given as a process's is.
func environOf(list []string) environ {
	env := environ{}
	for _, kv := range list {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}

func (e environ) add(vars map[string]string) {
	maps.Copy(e, vars)
}

func (e environ) list() []string {
	out := make([]string, 0, len(e))
	for k, v := range e {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
