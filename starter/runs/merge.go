package runs

import (
	"belay.run/internal/run"
)

// merge adds to what the pipeline says of a stage what the stage says itself.
// Of two states the later one is taken: either of the two may not have heard of
// the other's yet.
func merge(into *run.Stage, stage *run.Stage) {
	into.Steps = stage.Steps
	into.Resources = stage.Resources
	into.Notes = stage.Notes
	if stage.Host != "" {
		into.Host = stage.Host
	}
	if stage.Outputs != nil {
		into.Outputs = stage.Outputs
	}
	if later(stage.Status, into.Status) {
		into.Status, into.Cause = stage.Status, stage.Cause
	}
	if into.StartedAt == nil {
		into.StartedAt = stage.StartedAt
	}
	if into.EndedAt == nil {
		into.EndedAt = stage.EndedAt
	}
	if into.WaitingFor == nil {
		into.WaitingFor = stage.WaitingFor
	}
	if into.Status.Terminal() {
		into.WaitingFor = nil
	}
}

// later reports whether a node that was in b can be in a now.
func later(a, b run.Status) bool {
	return phase(a) > phase(b)
}

func phase(s run.Status) int {
	switch s {
	case run.Pending:
		return 0
	case run.Running:
		return 1
	case run.Cancelling:
		return 2
	case run.Succeeded, run.Failed, run.TimedOut, run.Cancelled, run.Skipped, run.Duplicate:
		return 3
	}
	return 0
}

// complete makes lists of a document that are not there empty, so that programs
// find the same fields in every document.
func complete(d *run.Document) {
	if d.Inputs == nil {
		d.Inputs = map[string]any{}
	}
	if d.Resources == nil {
		d.Resources = []run.Resource{}
	}
	if d.Stages == nil {
		d.Stages = []run.Stage{}
	}
	for i := range d.Stages {
		s := &d.Stages[i]
		if s.Resources == nil {
			s.Resources = []run.Resource{}
		}
		if s.Steps == nil {
			s.Steps = []run.Step{}
		}
		for j := range s.Steps {
			if s.Steps[j].Resources == nil {
				s.Steps[j].Resources = []run.Resource{}
			}
		}
	}
}
