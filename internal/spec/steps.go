package spec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// maxEnv is how large the environment of one step may be, in bytes.
const maxEnv = 128 << 10

// holder is what holds a list of steps: how long they may take together, and
// the variables that they get.
type holder struct {
	timeout time.Duration
	name    string
	// sizes are the bytes that each variable takes, total their sum.
	sizes map[string]int
	total int
}

func newHolder(timeout time.Duration, name string, env ...[]entry[string]) holder {
	h := holder{timeout: timeout, name: name, sizes: map[string]int{}}
	for _, e := range slices.Concat(env...) {
		h.total += sizeOf(e) - h.sizes[e.key]
		h.sizes[e.key] = sizeOf(e)
	}
	return h
}

// sizeOf is what a variable takes in an environment: name=value and a NUL.
func sizeOf(e entry[string]) int { return len(e.key) + len("=") + len(e.val.v) + 1 }

// stepContext is what checking the steps of a stage needs to know.
type stepContext struct {
	// stage is nil for the finally steps of the pipeline.
	stage *rawStage
	// layers are the variables of the stage and of the pipeline.
	layers []envLayer
	holder holder
	scopes stageScopes
	// names are those taken so far in the stage.
	names map[string]*yaml.Node
}

// steps checks a list of steps and freezes it.
func (c *checker) steps(list []val[rawStep], ctx stepContext) []Step {
	out := make([]Step, 0, len(list))
	for _, s := range list {
		out = append(out, c.step(s, ctx))
		ctx.scopes.before.ran(s.v)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// step checks a step, or a group and its members, and freezes it.
func (c *checker) step(in val[rawStep], ctx stepContext) Step {
	raw, held := in.v, ctx.holder
	c.uniqueStep(raw.name, ctx.names)
	out := Step{
		Name:        raw.name.v,
		When:        c.condition(raw.when, ctx.scopes.steps),
		Uses:        raw.uses.v,
		WorkingDir:  raw.workingDir.v,
		Env:         envOf(raw.env.v),
		Secrets:     values(raw.secrets.v),
		FailFast:    raw.failFast.v,
		Outputs:     values(raw.outputs.v),
		Timeout:     raw.timeout.or(held.timeout),
		GracePeriod: raw.gracePeriod.or(defaultGrace),
		Retry:       c.retry(raw.retry.v),
		OnFailure:   raw.onFailure.or(always(Abort)),
	}
	c.fits(raw.timeout, "the timeout of the step", held.timeout, held.name, true)
	c.fits(raw.gracePeriod, "the grace period", held.timeout, held.name, true)
	if raw.run.given() {
		c.runStep(in, ctx, &out)
	}
	if raw.uses.given() {
		c.lightStep(in, ctx, &out)
	}
	c.stepOnce(raw, ctx, &out)
	if raw.parallel.given() {
		ctx.scopes.before.begin(raw.parallel.v)
	}
	for _, m := range raw.parallel.v {
		out.Parallel = append(out.Parallel, c.step(m, ctx))
	}
	return out
}

// runStep checks what only a step with a script has.
func (c *checker) runStep(in val[rawStep], ctx stepContext, out *Step) {
	raw := in.v
	for _, cmd := range raw.run.v {
		c.fits(cmd.v.timeout, "the timeout of the command", out.Timeout, "that of the step", raw.timeout.given())
		out.Run = append(out.Run, Command{Script: cmd.v.command.v, Timeout: cmd.v.timeout.v})
	}
	out.Shell = c.shell(raw.shell)
	out.OutputLimit = raw.limits.v.output.or(defaultOutputLimit)
	out.Limits = raw.limits.v.limits()
	c.workingDir(raw.workingDir)
	c.useSecrets(raw.secrets.v...)
	c.besideSecrets("step", raw.env.v, raw.secrets.v)
	out.Container = c.container(raw, ctx.scopes.steps)
	c.stepEnv(in, ctx.holder)
	c.stepOutputs(raw.outputs.v)
	c.template(raw.workingDir, ctx.scopes.steps)
	c.templates(raw.env.v, ctx.ownScope(raw.env.v))
	out.Resources = c.resources(raw, ctx.scopes.steps)
}

// ownScope is what the env and the key of a step with these variables may read.
func (ctx stepContext) ownScope(own []entry[string]) *scope {
	names := ctx.scopes.steps
	if len(own) == 0 {
		return names
	}
	return names.with(map[string]*expr.Name{"env": ownEnv(names.names["env"], own)})
}

func (c *checker) uniqueStep(name val[string], names map[string]*yaml.Node) {
	if !name.given() {
		return
	}
	if other := names[name.v]; other != nil {
		c.p.errorf(name.node, "rename one of the two", "the step %s stands twice in this stage, first in line %d", name.v, other.Line)
		return
	}
	names[name.v] = name.node
}

// shell is the command line that a script is run by.
func (c *checker) shell(s val[string]) string {
	const usual = "sh"
	if s.given() && (hasExpr(s.v) || strings.ContainsAny(s.v, "\n\r")) {
		c.p.errorf(s.node, "write the command line out, such as bash or python3 -u", "shell is one command line without expressions")
	}
	return s.or(usual)
}

func (c *checker) workingDir(d val[string]) {
	if !d.given() || hasExpr(d.v) {
		return
	}
	if err := CheckWorkingDir(d.v); err != nil {
		c.p.errorf(d.node, "write a path below the workspace, such as src/app", "working_dir: %s", err)
	}
}

// CheckWorkingDir says what is wrong with a folder that must lie in the
// workspace. It is for folders that expressions made.
func CheckWorkingDir(dir string) error { return localPath(dir) }

// localPath refuses a path that does not stay below where it begins.
func localPath(s string) error {
	switch {
	case s == "":
		return errors.New("the path is empty")
	case strings.ContainsAny(s, "\x00\n\r"):
		return fmt.Errorf("the path %s holds a control character", quote(s))
	case path.IsAbs(s):
		return fmt.Errorf("the path %s is absolute", quote(s))
	case strings.HasPrefix(s, "~"):
		return fmt.Errorf("the path %s begins with ~, which is not expanded", quote(s))
	}
	if clean := path.Clean(s); clean == ".." || strings.HasPrefix(clean, "../") {
		return fmt.Errorf("the path %s leaves the workspace", quote(s))
	}
	return nil
}

// artifact checks a path or pattern of files that other stages get.
func (c *checker) artifact(a val[string]) {
	switch {
	case hasExpr(a.v):
		c.p.errorf(a.node, "write the path out; * and ** stand for names", "expressions are not possible in artifacts")
		return
	case slices.Contains(strings.Split(a.v, "/"), ".."):
		c.p.errorf(a.node, "write a path below the workspace, such as dist/app", "artifacts: the path %s holds ..", quote(a.v))
		return
	}
	if err := localPath(a.v); err != nil {
		c.p.errorf(a.node, "write a path below the workspace, such as dist/app", "artifacts: %s", err)
		return
	}
	for part := range strings.SplitSeq(a.v, "/") {
		if _, err := path.Match(part, ""); err != nil {
			c.p.errorf(a.node, "close the [", "artifacts: %s is no pattern", quote(a.v))
			return
		}
	}
}

// stepEnv checks how large the environment of a step becomes.
func (c *checker) stepEnv(in val[rawStep], held holder) {
	total := held.total
	for _, e := range in.v.env.v {
		total += sizeOf(e) - held.sizes[e.key]
	}
	if total > maxEnv {
		c.p.errorf(in.node, "hand large values over by files", "the variables of the step are %d bytes large, at most %d are allowed", total, maxEnv)
	}
}

func (c *checker) stepOutputs(list []val[string]) {
	seen := map[string]bool{}
	for _, o := range list {
		if seen[o.v] {
			c.p.errorf(o.node, "remove one of the two", "the output %s is declared twice", o.v)
		}
		seen[o.v] = true
	}
}

func (c *checker) retry(raw rawRetry) Retry {
	out := Retry{MaxAttempts: raw.maxAttempts.or(1), ExitCodes: values(raw.exitCodes.v)}
	if out.MaxAttempts == 1 {
		if raw.maxAttempts.given() && raw.exitCodes.given() {
			c.p.warnf(raw.exitCodes.node, "raise max_attempts", "exit_codes have no effect with one attempt")
		}
		return out
	}
	out.InitialInterval = raw.initialInterval.or(defaultInterval)
	out.Backoff = raw.backoff.or(defaultBackoff)
	out.MaxInterval = raw.maxInterval.or(min(out.InitialInterval*maxIntervalFactor, maxDuration))
	if raw.maxInterval.given() && out.MaxInterval < out.InitialInterval {
		c.p.errorf(raw.maxInterval.node, "raise it", "max_interval (%s) is shorter than initial_interval (%s)",
			short(out.MaxInterval), short(out.InitialInterval))
	}
	return out
}
