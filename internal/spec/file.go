package spec

import (
	"encoding/json"
	"fmt"
	"sync"
)

// MaxPlan is how large a plan may be as JSON, in bytes: Temporal takes at most
// 2 MiB in one piece, and a plan travels with other things.
const MaxPlan = 3 << 19

// File is a pipeline file that was found valid. It makes plans out of inputs.
type File struct {
	// Name is the pipeline's, Path where the file was read from.
	Name, Path string
	// Inputs are the declared inputs, in the order of the file.
	Inputs []Input
	// Secrets are the names of the secrets that steps may be given.
	Secrets []string

	plan Plan
}

// grammar is what a pipeline file may be: made once, since it compiles patterns by
// the dozen, and only by who reads a file.
var grammar = sync.OnceValue(fileObject)

// Parse reads and checks a pipeline file; path is its name in what it reports.
// The file is nil where there are errors. Parse never fails otherwise, and what
// it takes is bounded, whatever the text is.
func Parse(path string, text []byte) (*File, *Report) {
	if len(text) > MaxFile {
		text = text[:MaxFile+1]
	}
	p := newParser(path, text)
	root := p.load()
	if root == nil {
		return nil, p.report()
	}
	raw, ok := grammar().read(p, root)
	if !ok {
		return nil, p.report()
	}
	f := p.check(raw)
	report := p.report()
	if len(report.Errors) > 0 {
		return nil, report
	}
	return f, report
}

// Plan binds inputs, given as text, and returns the plan of a run. Everything
// that is wrong with them is in one *InvalidError. The stages are shared by all
// plans of the file, and not to be changed.
func (f *File) Plan(inputs map[string]string) (*Plan, error) {
	values, err := f.bind(inputs)
	if err != nil {
		return nil, err
	}
	plan := f.plan
	plan.Inputs = values
	if plan.Source, err = f.source(values); err != nil {
		return nil, err
	}
	b, err := json.Marshal(plan)
	if err != nil {
		return nil, fmt.Errorf("writing the plan of %s: %w", f.Name, err)
	}
	if len(b) > MaxPlan {
		return nil, f.invalid(Problem{
			Message: fmt.Sprintf("the plan is %d bytes large, at most %d are allowed", len(b), MaxPlan),
			Hint:    "move long scripts into files of the source, or split the pipeline",
		})
	}
	return &plan, nil
}

// Draft is the plan that all runs of the file have in common: without the values
// of inputs. It is to look at, and not to be changed.
func (f *File) Draft() *Plan {
	plan := f.plan
	return &plan
}

func (f *File) invalid(problems ...Problem) error {
	for i := range problems {
		problems[i].Path = f.Path
	}
	return &InvalidError{Problems: problems, Count: len(problems)}
}
