// Package router decides where built-in steps run: among the light tasks of any
// worker, or on the host of their stage like a step with a process. It goes by
// rules, the first that fits, and can say which it was.
package router

import (
	"path"
	"slices"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// Rule sends the steps that fit it somewhere. What is left out fits all.
type Rule struct {
	// Name is how the rule is called where a decision is explained.
	Name string
	// Uses are the types of the steps.
	Uses []string
	// Steps are patterns of their paths, such as deploy/* or */report.
	Steps []string
	// Labels are labels that they have.
	Labels map[string]string
	// LongerThan and LargerThan hold for steps whose labels duration and memory
	// say more. 0 holds for all.
	LongerThan time.Duration
	LargerThan int64
	// To is where they run.
	To spec.Destination
}

// What is light, where no file says otherwise.
const (
	longerThan = 5 * time.Second
	largerThan = 1 << 20
)

// defaults are the rules that stand behind those of a file. The last fits all.
func defaults() []Rule {
	return []Rule{
		{Name: "long", LongerThan: longerThan, To: spec.ToHost},
		{Name: "large", LargerThan: largerThan, To: spec.ToHost},
		{Name: "default", To: spec.ToLight},
	}
}

// ruleNoop is said of steps that do nothing, which no rule is asked about.
const ruleNoop = "noop"

// Router decides by rules. It is safe for concurrent use.
type Router struct{ rules []Rule }

// New returns a router by rules, behind which the defaults stand.
func New(rules ...Rule) *Router { return &Router{slices.Concat(rules, defaults())} }

// Route is where a step of a stage runs.
func (r *Router) Route(stage string, st *spec.Step) *spec.Route {
	if st.Uses == ruleNoop && len(st.With) == 0 {
		return &spec.Route{To: spec.ToControl, Rule: ruleNoop}
	}
	for i := range r.rules {
		if rule := &r.rules[i]; rule.fits(stage, st) {
			return &spec.Route{To: rule.To, Rule: rule.Name}
		}
	}
	return &spec.Route{To: spec.ToLight} // the last rule fits all
}

func (r *Rule) fits(stage string, st *spec.Step) bool {
	if len(r.Uses) > 0 && !slices.Contains(r.Uses, st.Uses) {
		return false
	}
	node := stage + "/" + st.Name
	if len(r.Steps) > 0 && !slices.ContainsFunc(r.Steps, func(pattern string) bool {
		ok, err := path.Match(pattern, node)
		return ok && err == nil // patterns are checked when they are read
	}) {
		return false
	}
	for name, value := range r.Labels {
		if have, ok := st.Labels[name]; !ok || have != value {
			return false
		}
	}
	return (r.LongerThan == 0 || st.ExpectedDuration() > r.LongerThan) && (r.LargerThan == 0 || st.ExpectedMemory() > r.LargerThan)
}

// Apply is the plan with each built-in step routed. The plan itself stays as it
// is: its stages are shared.
func (r *Router) Apply(plan *spec.Plan) *spec.Plan {
	out := *plan
	out.Stages = slices.Clone(plan.Stages)
	for i := range out.Stages {
		st := &out.Stages[i]
		st.Steps, st.Rollback, st.Finally = r.steps(st.Name, st.Steps), r.steps(st.Name, st.Rollback), r.steps(st.Name, st.Finally)
	}
	out.Finally = r.steps(run.FinallyStage, plan.Finally)
	return &out
}

func (r *Router) steps(stage string, list []spec.Step) []spec.Step {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Uses == "" {
			out[i].Parallel = r.steps(stage, out[i].Parallel)
			continue
		}
		// A step that does nothing is known without a word, in plans of thousands.
		if to := r.Route(stage, &out[i]); to.To != spec.ToControl {
			out[i].Route = to
		}
	}
	return out
}
