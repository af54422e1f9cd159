package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"belay.run/internal/durations"
	"belay.run/internal/router"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tree"
)

// explained is what is said about a pipeline, stage or step that has a key or a
// group, or about a built-in step.
type explained struct {
	// Node is its path, without the legs of a matrix; "" is the pipeline.
	Node        string               `json:"node"`
	Dedup       *explainedDedup      `json:"dedup,omitempty"`
	Risk        spec.Risk            `json:"risk,omitempty"`
	Concurrency *explainedConcurrent `json:"concurrency,omitempty"`
	// Route is where a built-in step runs.
	Route *spec.Route `json:"route,omitempty"`
}

type explainedDedup struct {
	Key         string `json:"key"`
	Space       string `json:"space"`
	Window      string `json:"window"`
	OnDuplicate string `json:"on_duplicate"`
	OnMismatch  string `json:"on_mismatch"`
	// ClaimTimeout is empty at low risk, where nothing waits.
	ClaimTimeout string `json:"claim_timeout,omitempty"`

	timeout time.Duration
}

type explainedConcurrent struct {
	Group  string `json:"group"`
	Limit  int    `json:"limit"`
	OnFull string `json:"on_full"`
}

// explain lists what has a key or a group, and where built-in steps run, in the
// order of the file.
func explain(plan *spec.Plan, r *router.Router) []explained {
	out := []explained{{
		Dedup: explainDedup(plan.Dedup, plan.Risk, plan.Timeout, "runs of "+plan.Name+", of one tenant and project"),
		Risk:  plan.Risk, Concurrency: explainGroup(plan.Concurrency),
	}}
	for i := range plan.Stages {
		st := &plan.Stages[i]
		out = append(out, explained{Node: st.Name, Concurrency: explainGroup(st.Concurrency)})
		for _, s := range stepsOf(st.Steps, st.Rollback, st.Finally) {
			out = append(out, explainStep(st.Name, s, r))
		}
	}
	for _, s := range stepsOf(plan.Finally) {
		out = append(out, explainStep(run.FinallyStage, s, r))
	}
	kept := out[:0]
	for _, e := range out {
		if e.Dedup != nil || e.Concurrency != nil || e.Route != nil {
			kept = append(kept, e)
		}
	}
	return kept
}

func explainStep(stage string, s *spec.Step, r *router.Router) explained {
	var route *spec.Route
	if s.Uses != "" {
		route = r.Route(stage, s)
	}
	return explained{
		Route: route,
		Node:  run.StepNode(stage, s.Name), Risk: s.Risk,
		Dedup: explainDedup(s.Dedup, s.Risk, s.Timeout, "steps of all pipelines, of one tenant and project"),
	}
}

// stepsOf are the steps of lists, the members of groups in the place of these.
func stepsOf(lists ...[]spec.Step) []*spec.Step {
	var out []*spec.Step
	for _, list := range lists {
		for i := range list {
			if len(list[i].Parallel) > 0 {
				out = append(out, stepsOf(list[i].Parallel)...)
			} else {
				out = append(out, &list[i])
			}
		}
	}
	return out
}

func explainDedup(d *spec.Dedup, risk spec.Risk, timeout time.Duration, space string) *explainedDedup {
	if d == nil {
		return nil
	}
	out := &explainedDedup{
		Key: d.Key, Space: space, Window: spec.WindowAuto, OnDuplicate: d.OnDuplicate, OnMismatch: d.OnMismatch, timeout: timeout,
	}
	if d.Window > 0 {
		out.Window = spec.FormatDuration(d.Window)
	}
	if risk != spec.RiskLow {
		out.ClaimTimeout = spec.FormatDuration(d.ClaimTimeout)
	}
	return out
}

func explainGroup(c *spec.Concurrency) *explainedConcurrent {
	if c == nil {
		return nil
	}
	return &explainedConcurrent{Group: c.Group, Limit: c.Limit, OnFull: c.OnFull}
}

// printExplained shows what was asked for beside the report.
func (a *app) printExplained(f *validateFlags, file *spec.File, v *validateFile) error {
	if file == nil {
		return nil
	}
	var b strings.Builder
	if f.explain {
		writeExplained(&b, file.Name, v.Explain)
	}
	if f.suggest {
		writeSuggestions(&b, v.Timeouts)
	}
	if _, err := io.WriteString(a.Out, b.String()); err != nil {
		return fmt.Errorf("writing what the file means: %w", err)
	}
	return nil
}

func writeExplained(b *strings.Builder, pipeline string, list []explained) {
	if !slices.ContainsFunc(list, func(e explained) bool { return e.Dedup != nil || e.Concurrency != nil }) {
		b.WriteString("  nothing has a key or a group: each request runs\n")
	}
	for _, e := range list {
		name := e.Node
		if name == "" {
			name = "pipeline " + pipeline
		}
		fmt.Fprintf(b, "  %s\n", tree.Clean(name))
		if d := e.Dedup; d != nil {
			row(b, "key", tree.Clean(d.Key))
			row(b, "among", d.Space)
			row(b, "window", windowWords(d))
			row(b, "duplicate", d.OnDuplicate+": "+duplicateWords(d.OnDuplicate, e.Node == ""))
			row(b, "other inputs", d.OnMismatch+": "+mismatchWords(d.OnMismatch))
			row(b, "risk", string(e.Risk)+": "+riskWords(d))
		}
		if to := e.Route; to != nil {
			row(b, "runs", fmt.Sprintf("%s: %s (rule %s)", to.To, routeWords(to.To), tree.Clean(to.Rule)))
		}
		if g := e.Concurrency; g != nil {
			row(b, "group", tree.Clean(g.Group))
			row(b, "limit", fmt.Sprintf("%d at a time; %s", g.Limit, fullWords(g.OnFull)))
		}
	}
}

func row(b *strings.Builder, what, text string) { fmt.Fprintf(b, "    %-13s %s\n", what, text) }

func windowWords(d *explainedDedup) string {
	if d.Window != spec.WindowAuto {
		return d.Window + " from its completion"
	}
	return fmt.Sprintf("auto: from its completion for twice the measured p99, at least %s (twice the timeout); %s where nothing was measured",
		spec.FormatDuration(2*d.timeout), spec.FormatDuration(durations.Quantiles{}.Window(d.timeout)))
}

func duplicateWords(policy string, pipeline bool) string {
	switch {
	case policy == spec.OnDuplicateReject && pipeline:
		return "refused, with exit code 3 and the name of the run that there is"
	case policy == spec.OnDuplicateReject:
		return "the step fails while another runs it; once it is done, its result is taken"
	case policy == spec.OnDuplicateReplace:
		return "the run that there is is cancelled; when it is gone, the new one runs"
	case pipeline:
		return "follows the run that there is, and ends as it does"
	}
	return "waits for the one that runs and takes its result; runs if that fails"
}

func mismatchWords(policy string) string {
	if policy == spec.OnDuplicateReject {
		return "refused"
	}
	return "a duplicate all the same, with a warning"
}

func riskWords(d *explainedDedup) string {
	if d.ClaimTimeout == "" {
		return "goes on without Redis, and says so"
	}
	return "waits up to " + d.ClaimTimeout + " for Redis, then fails"
}

func fullWords(policy string) string {
	switch policy {
	case spec.OnFullCancelRunning:
		return "the oldest is cancelled to make way for the next"
	case spec.OnFullReject:
		return "the next is refused"
	}
	return "the next waits, in order"
}

func routeWords(to spec.Destination) string {
	switch to {
	case spec.ToControl:
		return "beside the workflows, as it does nothing"
	case spec.ToHost:
		return "on the host of its stage, which takes one for it"
	case spec.ToLight:
	}
	return "among the light tasks of any worker"
}
