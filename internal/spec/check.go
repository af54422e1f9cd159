package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// Defaults of what a file does not say.
const (
	defaultTimeout        = 6 * time.Hour
	defaultGrace          = 10 * time.Second
	defaultFinallyTimeout = 5 * time.Minute
	defaultReleaseTimeout = 2 * time.Minute
	defaultOutputLimit    = 1 << 30
	defaultInterval       = time.Second
	defaultBackoff        = 2.0
	defaultClaimTimeout   = 5 * time.Minute
	// maxLegsOfRun bounds the stages of a run with all legs counted.
	maxLegsOfRun = 2000
	// maxIntervalFactor times the first interval is the longest by default.
	maxIntervalFactor = 100
)

// checker checks a file as a whole and freezes it into a plan.
type checker struct {
	p    *parser
	file *File
	raw  rawFile
	// secrets and stages are those declared, by name.
	secrets map[string]bool
	stages  map[string]*rawStage
	// usedSecrets and usedInputs are those that something reads.
	usedSecrets, usedInputs map[string]bool
	// reads are the stages that expressions of the stage in hand read.
	reads map[string]bool

	expr *expr.Checker
	// baseScope is what all expressions may read, pipelineEnv the variables of
	// the pipeline.
	baseScope     *scope
	pipelineEnv   *expr.Name
	pipelineLayer envLayer
	// matrices and stageCache are by stage.
	matrices   map[string]*Matrix
	stageCache map[string]*expr.Name
	// keys are those of all matrices.
	keys []matrixKey
	// tenants are the inputs by which tenants are told apart.
	tenants []string
	// keyed are the steps with a key, by its text.
	keyed map[string][]keyedStep
	// legWork counts the legs compared so far.
	legWork int
}

func (p *parser) check(raw rawFile) *File {
	c := &checker{
		p: p, raw: raw, file: &File{Name: raw.name.v, Path: p.path},
		secrets: map[string]bool{}, stages: map[string]*rawStage{},
		usedSecrets: map[string]bool{}, usedInputs: map[string]bool{},
		expr: expr.NewChecker(), matrices: map[string]*Matrix{}, stageCache: map[string]*expr.Name{},
		keyed: map[string][]keyedStep{},
	}
	c.file.Inputs = c.inputs(raw.inputs.v)
	c.tenants = tenantInputs(c.file.Inputs)
	c.baseScope, c.pipelineEnv = c.base(), envGroup(raw.env.v)
	c.pipelineLayer = layerOf(raw.env.v, c.baseScope)
	c.declareSecrets()
	c.declareStages()
	c.needs()
	c.file.plan = Plan{
		Name:           raw.name.v,
		Env:            envOf(raw.env.v),
		Timeout:        raw.timeout.or(defaultTimeout),
		FinallyTimeout: raw.finallyTimeout.or(defaultFinallyTimeout),
		ReleaseTimeout: raw.releaseTime.or(defaultReleaseTimeout),
	}
	plan := &c.file.plan
	if raw.source.given() {
		plan.Source = c.sourceOf(raw.source.v)
	}
	c.pipelineOnce(raw, plan)
	plan.Notify = c.notify(raw.notify)
	for i := range raw.stages.v {
		plan.Stages = append(plan.Stages, c.stage(raw.stages.v[i]))
	}
	c.reads = map[string]bool{}
	c.templates(raw.env.v, c.baseScope)
	scopes := c.scopes(nil)
	scopes.before.add(raw.finally.v)
	plan.Finally = c.steps(raw.finally.v, stepContext{
		layers: []envLayer{c.pipelineLayer},
		holder: newHolder(plan.FinallyTimeout, "finally_timeout", raw.env.v), scopes: scopes, names: map[string]*yaml.Node{},
	})
	c.noRollbackIn(raw.finally.v, "finally steps")
	plan.FinallyReads = slices.Sorted(maps.Keys(c.reads))
	c.countSteps(raw.finally)
	c.countLegs()
	c.sameKeys()
	c.groupsInOrder()
	c.unused()
	return c.file
}

func (c *checker) declareSecrets() {
	for _, s := range c.raw.secrets.v {
		if c.secrets[s.v] {
			c.p.errorf(s.node, "remove one of the two", "the secret %s is declared twice", s.v)
		}
		c.secrets[s.v] = true
		c.file.Secrets = append(c.file.Secrets, s.v)
	}
}

func (c *checker) declareStages() {
	if n := len(c.raw.stages.v); n > maxStages {
		c.p.errorf(c.raw.stages.node, "split the pipeline", "the pipeline has %d stages, at most %d are allowed", n, maxStages)
	}
	for i := range c.raw.stages.v {
		s := &c.raw.stages.v[i].v
		if !s.name.given() {
			continue
		}
		if other := c.stages[s.name.v]; other != nil {
			c.p.errorf(s.name.node, "rename one of the two", "the stage %s stands here twice, first in line %d", s.name.v, other.name.node.Line)
			continue
		}
		c.stages[s.name.v] = s
		if m := c.matrix(*s); m != nil {
			c.matrices[s.name.v] = m
		}
	}
}

// unused warns of what is declared and read by nothing. In a file with errors
// it may be for one of these that nothing does.
func (c *checker) unused() {
	if len(c.p.errors) > 0 {
		return
	}
	for _, s := range c.raw.secrets.v {
		if !c.usedSecrets[s.v] {
			c.p.warnf(s.node, "give it to a step: secrets: ["+s.v+"]", "the secret %s is given to no step", s.v)
		}
	}
	for _, e := range c.raw.inputs.v {
		if !c.usedInputs[e.key] {
			c.p.warnf(e.at, "", "nothing reads the input %s", e.key)
		}
	}
	for _, k := range c.keys {
		if !k.read[k.name] {
			c.p.warnf(k.at, fmt.Sprintf("hand it to a step: env: {%s: \"${{ matrix.%s }}\"}", strings.ToUpper(k.name), k.name),
				"nothing reads matrix.%s", k.name)
		}
	}
}

// stage checks a stage and freezes it.
func (c *checker) stage(in val[rawStage]) Stage {
	raw := in.v
	plan := c.file.plan
	c.reads = map[string]bool{}
	out := Stage{
		Name:           raw.name.v,
		Needs:          values(raw.needs.v),
		RunsOn:         raw.runsOn.v,
		Env:            envOf(raw.env.v),
		Artifacts:      values(raw.artifacts.v),
		Timeout:        raw.timeout.or(plan.Timeout),
		FinallyTimeout: plan.FinallyTimeout,
		OnFailure:      raw.onFailure.or(always(Abort)),
		OnWorkerLost:   raw.onWorkerLost.or(LostFail),
	}
	c.fits(raw.timeout, "the timeout of the stage", plan.Timeout, "that of the pipeline", c.raw.timeout.given())
	out.Matrix = c.matrices[raw.name.v]
	for _, a := range raw.artifacts.v {
		c.artifact(a)
	}
	c.countSteps(raw.steps)
	c.countSteps(raw.rollback)
	c.countSteps(raw.finally)
	scopes := c.scopes(&raw)
	out.When = c.condition(raw.when, scopes.when)
	c.template(raw.runsOn, scopes.env)
	c.templates(raw.env.v, scopes.env)
	out.Concurrency = c.concurrency(raw.concurrency, scopes.env)
	out.Services = c.services(raw.services, out.Timeout, scopes.env)
	out.Resources = c.stageResources(&raw, scopes.steps)
	ctx := stepContext{
		stage: &raw, layers: []envLayer{layerOf(raw.env.v, scopes.env), c.pipelineLayer}, holder: newHolder(out.Timeout, "the timeout of the stage", c.raw.env.v, raw.env.v),
		scopes: scopes, names: map[string]*yaml.Node{},
	}
	out.Steps = c.steps(raw.steps.v, ctx)
	ctx.holder = newHolder(out.FinallyTimeout, "finally_timeout", c.raw.env.v, raw.env.v)
	out.Rollback = c.rollback(&raw, ctx)
	c.noRollbackIn(raw.rollback.v, "rollback steps")
	c.noRollbackIn(raw.finally.v, "finally steps")
	out.Finally = c.steps(raw.finally.v, ctx)
	out.Reads = slices.Sorted(maps.Keys(c.reads))
	return out
}

func (c *checker) matrix(raw rawStage) *Matrix {
	parallel, failFast := raw.maxParallel, raw.failFast
	if !raw.matrix.given() {
		if parallel.given() {
			c.p.errorf(parallel.node, "remove it", "max_parallel without a matrix")
		}
		if failFast.given() {
			c.p.errorf(failFast.node, "remove it; in a parallel group it stands beside parallel", "fail_fast without a matrix")
		}
		return nil
	}
	m := raw.matrix.v
	if m.maxParallel.given() {
		if parallel.given() {
			c.p.errorf(m.maxParallel.node, "remove one of the two", "max_parallel stands in the stage and in its matrix")
		}
		parallel = m.maxParallel
	}
	if m.failFast.given() {
		if failFast.given() {
			c.p.errorf(m.failFast.node, "remove one of the two", "fail_fast stands in the stage and in its matrix")
		}
		failFast = m.failFast
	}
	return &Matrix{Legs: c.p.expand(raw.matrix), MaxParallel: parallel.v, FailFast: failFast.v}
}

// countLegs checks how many stages a run has, each leg of a matrix counted: all
// of them are listed in its document.
func (c *checker) countLegs() {
	n := 0
	for _, s := range c.file.plan.Stages {
		if s.Matrix != nil {
			n += len(s.Matrix.Legs)
		} else {
			n++
		}
	}
	if n > maxLegsOfRun {
		c.p.errorf(c.raw.stages.node, "split the pipeline", "the pipeline has %d stages with all legs of matrices counted, at most %d are allowed",
			n, maxLegsOfRun)
	}
}

// countSteps checks the number of steps; the members of groups count too.
func (c *checker) countSteps(list val[[]val[rawStep]]) {
	n := 0
	for _, s := range list.v {
		n += max(1, len(s.v.parallel.v))
	}
	if n > maxSteps {
		c.p.errorf(list.node, "split the stage", "the stage has %d steps, at most %d are allowed", n, maxSteps)
	}
}

func always(a Action) OnFailure { return OnFailure{Timeout: a, Error: a, Lost: a, Default: a} }

func values[V any](list []val[V]) []V {
	if len(list) == 0 {
		return nil
	}
	out := make([]V, len(list))
	for i, v := range list {
		out[i] = v.v
	}
	return out
}

func envOf(entries []entry[string]) map[string]string {
	if len(entries) == 0 {
		return nil
	}
	m := make(map[string]string, len(entries))
	for _, e := range entries {
		m[e.key] = e.val.v
	}
	return m
}

// fits checks that a timeout is not longer than what holds it.
func (c *checker) fits(v val[time.Duration], what string, holder time.Duration, holderName string, written bool) {
	if !v.given() || v.v <= holder {
		return
	}
	by := ""
	if !written {
		by = ", by default"
	}
	c.p.errorf(v.node, "at most "+short(holder), "%s is %s, longer than %s (%s%s)", what, short(v.v), holderName, short(holder), by)
}
