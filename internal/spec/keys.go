package spec

import (
	"time"

	"go.yaml.in/yaml/v3"
)

// The tables of keys: what a pipeline file may hold, where, and of what kind.
// The parser and the JSON Schema are both made of them.

// Bounds that the tables and the checks share.
const (
	maxStages   = 500
	maxSteps    = 1000
	maxAttempts = 1000
	maxExitCode = 255
)

// Forms of a step.
const (
	runForm form = 1 << iota
	usesForm
	groupForm
)

func fileObject() *object[rawFile] {
	return &object[rawFile]{
		name: "a pipeline",
		def:  "pipeline",
		free: "x-",
		later: []string{
			"schedule", "schedules", "triggers", "services", "on_failure", "rollback", "image",
		},
		never: map[string]string{
			"resources": "a pipeline is on no host that could hold something: set them on its stages or steps; " +
				"concurrency: {group: …, limit: 1} has one run go at a time",
		},
		fields: []field[rawFile]{
			key("version", version(), func(f *rawFile) *val[string] { return &f.version }),
			must(key("name", named(nodeNames("a pipeline")), func(f *rawFile) *val[string] { return &f.name })),
			key("description", text(), func(f *rawFile) *val[string] { return &f.description }),
			key("inputs", mapOf(nodeNames("an input"), inputObject().kind(), "inputs"), func(f *rawFile) *val[[]entry[rawInput]] { return &f.inputs }),
			key("source", sourceObject().kind(), func(f *rawFile) *val[rawSource] { return &f.source }),
			key("env", env(), func(f *rawFile) *val[[]entry[string]] { return &f.env }),
			key("secrets", listOf(named(envNames("a secret")), "secrets"), func(f *rawFile) *val[[]val[string]] { return &f.secrets }),
			key("dedup", pipelineDedupObject().kind(), func(f *rawFile) *val[rawDedup] { return &f.dedup }),
			key("risk", word(RiskHigh, RiskLow), func(f *rawFile) *val[Risk] { return &f.risk }),
			key("concurrency", concurrencyObject().kind(), func(f *rawFile) *val[rawConcurrency] { return &f.concurrency }),
			key("timeout", duration(time.Second), func(f *rawFile) *val[time.Duration] { return &f.timeout }),
			key("finally_timeout", duration(time.Second), func(f *rawFile) *val[time.Duration] { return &f.finallyTimeout }),
			key("release_timeout", duration(time.Second), func(f *rawFile) *val[time.Duration] { return &f.releaseTime }),
			must(key("stages", someOf(stageObject().kind(), "stages"), func(f *rawFile) *val[[]val[rawStage]] { return &f.stages })),
			key("notify", notifyObject().kind(), func(f *rawFile) *val[rawNotify] { return &f.notify }),
			key("finally", listOf(stepObject().kind(), "steps"), func(f *rawFile) *val[[]val[rawStep]] { return &f.finally }),
		},
	}
}

func inputObject() *object[rawInput] {
	return &object[rawInput]{
		name: "an input",
		def:  "input",
		fields: []field[rawInput]{
			key("type", word(stringType, intType, numberType, boolType), func(i *rawInput) *val[string] { return &i.typ }),
			key("default", anyScalar(), func(i *rawInput) *val[*yaml.Node] { return &i.def }),
			key("enum", someOf(anyScalar(), "values"), func(i *rawInput) *val[[]val[*yaml.Node]] { return &i.enum }),
			key("required", boolean(), func(i *rawInput) *val[bool] { return &i.required }),
			key("description", text(), func(i *rawInput) *val[string] { return &i.description }),
		},
	}
}

func sourceObject() *object[rawSource] {
	const folder, repository form = 1, 2
	o := &object[rawSource]{
		name: "a source",
		def:  "source",
		forms: []objectForm{
			{folder, "path", "a source with path", "folderSource", "it belongs to git"},
			{repository, "git", "a source with git", "gitSource", "it belongs to path"},
		},
	}
	o.fields = append(o.fields, only(folder,
		key("path", filled("a folder"), func(s *rawSource) *val[string] { return &s.path }),
		key("exclude", listOf(filled("a pattern"), "patterns"), func(s *rawSource) *val[[]val[string]] { return &s.exclude }),
	)...)
	o.fields = append(o.fields, only(repository,
		key("git", filled("the address of a repository"), func(s *rawSource) *val[string] { return &s.git }),
		key("ref", filled("a branch, tag or commit"), func(s *rawSource) *val[string] { return &s.ref }),
	)...)
	return o
}

func stageObject() *object[rawStage] {
	return &object[rawStage]{
		name:  "a stage",
		def:   "stage",
		later: []string{"image"},
		never: map[string]string{
			"dedup":  "a stage has no key: set it on its steps, or on the pipeline",
			"risk":   "a stage has no key: set it on its steps, or on the pipeline",
			"notify": "it stands at the top of the file, for the whole pipeline",
		},
		fields: []field[rawStage]{
			must(key("name", named(stageNames()), func(s *rawStage) *val[string] { return &s.name })),
			key("needs", listOf(named(nodeNames("a stage")), "stages"), func(s *rawStage) *val[[]val[string]] { return &s.needs }),
			key("when", condition(), func(s *rawStage) *val[string] { return &s.when }),
			key("matrix", matrix(), func(s *rawStage) *val[rawMatrix] { return &s.matrix }),
			key("max_parallel", integer(maxLegs), func(s *rawStage) *val[int] { return &s.maxParallel }),
			key("fail_fast", boolean(), func(s *rawStage) *val[bool] { return &s.failFast }),
			key("runs_on", filled("a label"), func(s *rawStage) *val[string] { return &s.runsOn }),
			key("env", env(), func(s *rawStage) *val[[]entry[string]] { return &s.env }),
			key("timeout", duration(time.Second), func(s *rawStage) *val[time.Duration] { return &s.timeout }),
			must(key("steps", someOf(stepObject().kind(), "steps"), func(s *rawStage) *val[[]val[rawStep]] { return &s.steps })),
			key("rollback", someOf(stepObject().kind(), "steps"), func(s *rawStage) *val[[]val[rawStep]] { return &s.rollback }),
			key("finally", listOf(stepObject().kind(), "steps"), func(s *rawStage) *val[[]val[rawStep]] { return &s.finally }),
			key("artifacts", listOf(filled("a path"), "paths"), func(s *rawStage) *val[[]val[string]] { return &s.artifacts }),
			key("services", listOf(serviceObject().kind(), "services"), func(s *rawStage) *val[[]val[rawService]] { return &s.services }),
			key("concurrency", concurrencyObject().kind(), func(s *rawStage) *val[rawConcurrency] { return &s.concurrency }),
			key("resources", listOf(resourceOf(stageResourceKinds()), "resources"), func(s *rawStage) *val[[]val[rawResource]] { return &s.resources }),
			key("on_failure", onFailure(), func(s *rawStage) *val[OnFailure] { return &s.onFailure }),
			key("on_worker_lost", word(LostFail, LostRerun), func(s *rawStage) *val[string] { return &s.onWorkerLost }),
		},
	}
}

// stepObject is a step, or a group of steps that run in parallel.
func stepObject() *object[rawStep] {
	o := memberObject()
	o.def = "step"
	delete(o.never, "parallel")
	o.forms = append(o.forms, objectForm{groupForm, "parallel", "a parallel group", "group", "set it on the steps of the group"})
	o.fields = append(o.fields, only(groupForm,
		key("parallel", someOf(memberObject().kind(), "steps"), func(s *rawStep) *val[[]val[rawStep]] { return &s.parallel }),
		key("fail_fast", boolean(), func(s *rawStep) *val[bool] { return &s.failFast }),
	)...)
	return o
}

// memberObject is a step that holds no others.
func memberObject() *object[rawStep] {
	never := map[string]string{
		"parallel":      "a parallel group holds no other group",
		"concurrency":   "groups bound stages and pipelines: set it on the stage",
		"claim_timeout": "it stands in dedup: dedup: {key: …, claim_timeout: 5m}",
	}
	o := &object[rawStep]{
		name: "a step",
		def:  "member",
		later: []string{
			"artifacts", "runs_on", "finally", "services", "rollback", "clean", "temp_dir", "wait_timeout",
		},
		never: never,
		forms: []objectForm{
			{runForm, "run", "a step that runs a script", "runStep", "remove it"},
			{usesForm, "uses", "a step with uses", "usesStep", "remove it"},
		},
		also: (*parser).fillWith, extended: usesForm, extend: describeWith,
		fields: []field[rawStep]{
			must(key("name", named(nodeNames("a step")), func(s *rawStep) *val[string] { return &s.name })),
			key("when", condition(), func(s *rawStep) *val[string] { return &s.when }),
			key("on_failure", onFailure(), func(s *rawStep) *val[OnFailure] { return &s.onFailure }),
		},
	}
	o.fields = append(o.fields, only(runForm|usesForm,
		key("timeout", duration(time.Millisecond), func(s *rawStep) *val[time.Duration] { return &s.timeout }),
		key("retry", retryObject().kind(), func(s *rawStep) *val[rawRetry] { return &s.retry }),
		key("dedup", stepDedupObject().kind(), func(s *rawStep) *val[rawDedup] { return &s.dedup }),
		key("risk", word(RiskHigh, RiskLow), func(s *rawStep) *val[Risk] { return &s.risk }),
		key("secrets", listOf(named(envNames("a secret")), "secrets"), func(s *rawStep) *val[[]val[string]] { return &s.secrets }),
		key("outputs", listOf(named(nodeNames("an output")), "outputs"), func(s *rawStep) *val[[]val[string]] { return &s.outputs }),
	)...)
	o.fields = append(o.fields, only(usesForm,
		key("uses", usesType(), func(s *rawStep) *val[string] { return &s.uses }),
		key("with", parameters(), func(s *rawStep) *val[[]entry[*yaml.Node]] { return &s.with }),
		key("labels", labels(), func(s *rawStep) *val[[]entry[string]] { return &s.labels }),
	)...)
	o.fields = append(o.fields, only(runForm,
		key("image", containerKind(), func(s *rawStep) *val[rawContainer] { return &s.image }),
		key("run", commands(), func(s *rawStep) *val[[]val[rawCommand]] { return &s.run }),
		key("shell", filled("a command line"), func(s *rawStep) *val[string] { return &s.shell }),
		key("working_dir", filled("a folder"), func(s *rawStep) *val[string] { return &s.workingDir }),
		key("env", env(), func(s *rawStep) *val[[]entry[string]] { return &s.env }),
		key("grace_period", duration(0), func(s *rawStep) *val[time.Duration] { return &s.gracePeriod }),
		key("limits", limitsObject().kind(), func(s *rawStep) *val[rawLimits] { return &s.limits }),
		key("resources", listOf(resourceOf(resourceKinds()), "resources"), func(s *rawStep) *val[[]val[rawResource]] { return &s.resources }),
	)...)
	return o
}

func commandObject() *object[rawCommand] {
	return &object[rawCommand]{
		name: "a command",
		def:  "command",
		fields: []field[rawCommand]{
			must(key("command", script(), func(c *rawCommand) *val[string] { return &c.command })),
			key("timeout", duration(time.Millisecond), func(c *rawCommand) *val[time.Duration] { return &c.timeout }),
		},
	}
}

func retryObject() *object[rawRetry] {
	const maxBackoff = 100
	return &object[rawRetry]{
		name: "retry",
		def:  "retry",
		fields: []field[rawRetry]{
			must(key("max_attempts", integer(maxAttempts), func(r *rawRetry) *val[int] { return &r.maxAttempts })),
			key("initial_interval", duration(time.Millisecond), func(r *rawRetry) *val[time.Duration] { return &r.initialInterval }),
			key("max_interval", duration(time.Millisecond), func(r *rawRetry) *val[time.Duration] { return &r.maxInterval }),
			key("backoff", factor(1, maxBackoff), func(r *rawRetry) *val[float64] { return &r.backoff }),
			key("exit_codes", someOf(integer(maxExitCode), "exit codes"), func(r *rawRetry) *val[[]val[int]] { return &r.exitCodes }),
		},
	}
}
