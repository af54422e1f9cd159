package workflows

import (
	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// StepsOf lists every step of a stage in the order of its document, all pending.
func StepsOf(in *StageInput) []run.Step {
	var out []run.Step
	node := run.StageNode(in.Stage.Name, in.Leg)
	add := func(steps []spec.Step, group string, finally, rollback bool) {
		for i := range steps {
			out = append(out, run.Step{
				Name: steps[i].Name, Node: run.StepNode(node, steps[i].Name),
				Group: group, Status: run.Pending, Finally: finally, Rollback: rollback, GracePeriod: grace(&steps[i]),
			})
		}
	}
	for _, list := range []struct {
		steps             []spec.Step
		finally, rollback bool
	}{{in.Stage.Steps, in.Finally, false}, {in.Stage.Rollback, false, true}, {in.Stage.Finally, true, false}} {
		for i := range list.steps {
			if group := &list.steps[i]; len(group.Parallel) > 0 {
				add(group.Parallel, group.Name, list.finally, list.rollback)
			} else {
				add(list.steps[i:i+1], "", list.finally, list.rollback)
			}
		}
	}
	return out
}

// grace is the grace period of a step that has processes.
func grace(st *spec.Step) string {
	if len(st.Run) == 0 {
		return ""
	}
	return st.GracePeriod.String()
}

// record writes how a step ended into its document.
func record(doc *run.Step, out *outcome) {
	res := &out.result
	doc.Status, doc.Cause = out.status, out.cause
	doc.ExitCode, doc.Outputs, doc.CPU, doc.MaxRSS = res.ExitCode, res.Outputs, res.CPU, res.MaxRSS
	doc.Attempts = max(res.Attempt, 1)
	if of := res.DuplicateOf; of != nil {
		doc.DuplicateOf = of.WorkflowID
	}
	if !res.StartedAt.IsZero() {
		doc.StartedAt, doc.EndedAt = &res.StartedAt, &res.EndedAt
	}
}

// RecordStep writes the end of a step's activity into its document, for who reads
// that in the history of a stage which left no document itself.
func RecordStep(doc *run.Step, res *activities.StepResult, err error) {
	out := readOutcome(doc.Node, res, err)
	record(doc, &out)
	doc.Resources = out.result.Resources
}

// CutSteps settles the steps of a stage of which the workflow was closed by others,
// for cause: what ran was ended with that, what had not begun never will.
func CutSteps(stage *run.Stage, cause *run.Cause) {
	why := run.Cause{Trigger: run.TriggerUser}
	if cause != nil {
		why = *cause
	}
	if why.Source == "" {
		why.Source = stage.Node
	}
	for i := range stage.Steps {
		switch st := &stage.Steps[i]; st.Status {
		case run.Pending:
			st.Status, st.Cause = run.Skipped, because(&why)
		case run.Running, run.Cancelling:
			st.Status, st.Cause, st.EndedAt = run.Cancelled, &why, stage.EndedAt
		case run.Succeeded, run.Failed, run.TimedOut, run.Cancelled, run.Skipped, run.Duplicate:
			if st.Status == run.Cancelled && st.Cause == nil {
				st.Cause = &why
			}
		}
	}
}
