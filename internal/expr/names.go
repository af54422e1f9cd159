package expr

// Kind is the kind of value that a name stands for.
type Kind int

// The kinds of values. A KindStatus is text, but only that of a state of a
// node; a KindGroup is no value but holds further names.
const (
	KindText Kind = iota
	KindInt
	KindNumber
	KindBool
	KindStatus
	KindGroup
)

// Name is what a name in an expression stands for.
type Name struct {
	Kind Kind
	// Members are the names in a KindGroup.
	Members Members
}

// Members are the names in a group, or those that an expression may begin with.
type Members interface {
	// Member is what name stands for. It is nil where there is no such name.
	// An error says why a name that there is cannot be read here.
	Member(name string) (*Name, *Error)
	// Names lists the names, to suggest one.
	Names() []string
	// Noun is what one of the names is called: stage, step, input, name.
	Noun() string
}

// Ref is a reference: a name that an expression reads, such as stages, build,
// status.
type Ref struct {
	Path   []string
	Kind   Kind
	Offset int
}

// Of is which name of a group is read, if it is one: arch in matrix.arch, of the
// group matrix.
func (r Ref) Of(group string) (name string, ok bool) {
	if r.Path[0] != group || len(r.Path) < 2 {
		return "", false
	}
	return r.Path[1], true
}

// static is a fixed set of names.
type static struct {
	noun  string
	names map[string]*Name
	order []string
}

// NewMembers makes a fixed set of names, each called a noun.
func NewMembers(noun string, names map[string]*Name, order []string) Members {
	return static{noun, names, order}
}

func (s static) Member(name string) (*Name, *Error) { return s.names[name], nil }
func (s static) Names() []string                    { return s.order }
func (s static) Noun() string                       { return s.noun }
