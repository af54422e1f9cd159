package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// rollBack runs the stage's rollback steps where it ended badly and an
// on_failure asks for them. One that fails keeps none of the others from
// running.
func (s *stage) rollBack(ctx workflow.Context) {
	steps := s.spec.Rollback
	if len(steps) == 0 {
		return
	}
	if s.now || !s.rollsBack(ctx) {
		for i := range steps {
			s.skip(&steps[i], nil)
		}
		return
	}
	s.follow(ctx, steps, "rollback")
	for i := range s.doc.Steps {
		if st := &s.doc.Steps[i]; st.Rollback && st.Status.Bad() {
			s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("not all is rolled back: %s ended %s", st.Node, st.Status))
		}
	}
}

// rollsBack reports whether an on_failure asks for a rollback: that of a step or
// group that failed, or the stage's own. What is stopped from above has not
// failed.
func (s *stage) rollsBack(ctx workflow.Context) bool {
	cause := s.failed.cause
	if s.halt.on() {
		s.awaitCause(ctx)
		cause = s.halt.cause
		unknown := s.halt.status == run.Cancelled && s.above == nil
		if unknown || !run.Within(cause.Source, s.doc.Node) {
			return false
		}
	}
	return cause != nil && (s.rollback || s.spec.OnFailure.For(cause.Trigger) == spec.Rollback)
}

// follows reports whether a step comes after the body of its stage, however that
// ended.
func (s *stage) follows(st *run.Step) bool {
	return st.Rollback || (st.Finally && !s.in.Finally)
}
