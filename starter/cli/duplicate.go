package cli

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/starter/runs"
)

// policy is the value of --on-duplicate.
type policy string

var _ pflag.Value = (*policy)(nil)

// String is the flag's text.
func (p *policy) String() string { return string(*p) }

// Type is shown in the help.
func (p *policy) Type() string { return "attach|reject|replace" }

// Set accepts what a file may say.
func (p *policy) Set(s string) error {
	switch s {
	case spec.OnDuplicateAttach, spec.OnDuplicateReject, spec.OnDuplicateReplace:
		*p = policy(s)
		return nil
	}
	return fmt.Errorf("%q is no policy: attach, reject or replace", s)
}

// original is the document of the run that stands for a duplicate which was found
// out in its own workflow; any other document is returned as it is.
func (s *started) original(ctx context.Context, d *run.Document) (*run.Document, error) {
	of, ok := runs.OriginalOf(d)
	if !ok || d.Rejected {
		return d, nil
	}
	snap, err := s.runs.Reader(of).Read(ctx)
	switch {
	case isNotFound(err):
		return d, nil // the duplicate says how it ended
	case err != nil:
		return nil, err
	}
	s.ref, s.attached = of, true
	return snap.Document, nil
}

// mark says in a document of another's run that this request is a duplicate.
func (s *started) mark(d *run.Document) {
	if s.attached && d.DuplicateOf == "" {
		d.DuplicateOf, d.DuplicateRunID = d.ID, d.RunID
		d.Notes = append(d.Notes, s.notes()...)
	}
}

// notes are what a person should know about a duplicate.
func (b *begun) notes() []string {
	var notes []string
	if b.mismatch {
		notes = append(notes, fmt.Sprintf("a duplicate of %s by its key, but with other inputs", b.ref))
	}
	if b.blind {
		notes = append(notes, fmt.Sprintf("Redis did not tell whether the window of %s is over: it counts as not over", b.ref))
	}
	return notes
}

// meaning is the state by which a run is judged: that of a duplicate whose
// original is not there any more is the one that the original ended in.
func meaning(d *run.Document) run.Status {
	if d.Status == run.Duplicate && d.Cause != nil {
		return d.Cause.Trigger.Status()
	}
	return d.Status
}

// refusal is the document of a request that was refused without a run of its own.
func (r *request) refusal(b *begun) *run.Document {
	return &run.Document{
		ID:       run.KeyedID(r.input.Tenant, r.input.Project, r.pipeline, r.keyed.key.Name),
		Pipeline: r.pipeline, Tenant: r.input.Tenant, Project: r.input.Project, Inputs: r.inputs,
		Status: run.Duplicate, Rejected: true, DedupKey: r.keyed.key.Name,
		DuplicateOf: b.ref.ID, DuplicateRunID: b.ref.RunID,
		Notes:     b.notes(),
		Resources: []run.Resource{}, Stages: []run.Stage{},
	}
}

// refused is the end of a request that was refused.
func (s *started) refused(d *run.Document) error {
	of := runs.Ref{ID: d.DuplicateOf, RunID: d.DuplicateRunID}
	exit := &ExitError{Code: ExitRejected}
	if s.json {
		d.URL = s.runs.URL(of)
		if err := writeJSON(s.Out, d); err != nil {
			return err
		}
		return exit
	}
	with := ""
	if s.mismatch {
		with = ", with other inputs"
	}
	exit.Err = fmt.Errorf("rejected: a duplicate of run %s%s", of, with)
	exit.Hint = fmt.Sprintf("look at that one with: %s status %s", s.Name, of)
	return exit
}
