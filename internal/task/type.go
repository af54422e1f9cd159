package task

import (
	"context"
	"encoding/json"
)

// Type is a type of light task. To add one, write it in a file of its own and
// name it in Builtin.
type Type interface {
	// Name is what `uses:` and `type` say.
	Name() string
	// Doc is what it does, in a sentence.
	Doc() string
	// Params are what it may be given.
	Params() []Param
	// Outputs are what a task of it may find out: the names that its Output may
	// have, of which a step hands on those that it declares.
	Outputs() []Field
	// Prepare checks what a task is given. It touches nothing of the world, so
	// that a pipeline file and a million lines can be checked before anything
	// starts. Its error is for people and names the parameter.
	Prepare(with json.RawMessage) (Job, error)
}

// Job is a task that has been checked.
type Job interface {
	// Target is what the task talks to, "host:port" where there is one and else
	// "": limits and circuit breakers go by it.
	Target() string
	// Run does it. It returns a *Failure, or another error, which counts as one
	// that is not retryable and nobody's fault. When ctx ends it returns soon.
	// It is called once at most.
	Run(ctx context.Context, origin Origin) (Output, error)
}

// ParamKind is the kind of a parameter's value.
type ParamKind string

// The kinds of parameters.
const (
	Text     ParamKind = "text"
	Number   ParamKind = "number"   // a whole one
	Truth    ParamKind = "bool"     //
	Duration ParamKind = "duration" // such as 5s
	Texts    ParamKind = "texts"    // a list
	Table    ParamKind = "table"    // text by name
	// Secret is the name of a secret. No other parameter names any, so that it can
	// be held that a step is given only those that it lists.
	Secret ParamKind = "secret"
)

// Param is one parameter of a type.
type Param struct {
	Name     string
	Kind     ParamKind
	Required bool
	// Enum are the only values that a text may have, where there are such.
	Enum []string
	Doc  string
}

// Field is one name of a type's Output.
type Field struct {
	Name string
	// Kind is Text, Number or Truth.
	Kind ParamKind
	// Always says that a task that succeeded has it.
	Always bool
	Doc    string
}
