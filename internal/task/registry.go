package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"belay.run/internal/expr"
)

// Registry is the types of tasks that there are. It is safe for concurrent use.
type Registry struct {
	types map[string]Type
	names []string
}

// NewRegistry returns a registry of types. Of two with one name it holds the
// later.
func NewRegistry(types ...Type) *Registry {
	r := &Registry{types: make(map[string]Type, len(types))}
	for _, t := range types {
		r.types[t.Name()] = t
	}
	r.names = slices.Sorted(maps.Keys(r.types))
	return r
}

// Get is the type of that name.
func (r *Registry) Get(name string) (Type, bool) {
	t, ok := r.types[name]
	return t, ok
}

// Types are all types, by name.
func (r *Registry) Types() []Type {
	types := make([]Type, len(r.names))
	for i, name := range r.names {
		types[i] = r.types[name]
	}
	return types
}

// Prepare checks what a task is given. Its error begins with the type's name.
func (r *Registry) Prepare(t Task) (Job, error) {
	typ, ok := r.types[t.Type]
	if !ok {
		return nil, fmt.Errorf("type %.64q: not known%s", t.Type, alternatives(t.Type, r.names))
	}
	job, err := typ.Prepare(t.With)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Type, err)
	}
	return job, nil
}

// Secrets are the names of the secrets that a task is given. Of a task that is not
// right they may not be all.
func (r *Registry) Secrets(t Task) []string {
	typ, ok := r.types[t.Type]
	if !ok || len(t.With) == 0 {
		return nil
	}
	var names []string
	var given map[string]json.RawMessage
	for _, p := range typ.Params() {
		if p.Kind != Secret {
			continue
		}
		if given == nil && json.Unmarshal(t.With, &given) != nil {
			return nil // Prepare says what is wrong
		}
		var name string
		if json.Unmarshal(given[p.Name], &name) == nil && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// CheckOutput says what is wrong with an output as one of a type: whether it has
// such fields, of such kinds.
func (r *Registry) CheckOutput(typ string, out Output) error {
	t, ok := r.types[typ]
	if !ok {
		return fmt.Errorf("type %.64q: not known%s", typ, alternatives(typ, r.names))
	}
	kinds := map[string]ParamKind{}
	for _, f := range t.Outputs() {
		kinds[f.Name] = f.Kind
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		kind, ok := kinds[name]
		switch out[name].(type) {
		case string:
			ok = ok && kind == Text
		case int, int64:
			ok = ok && kind == Number
		case bool:
			ok = ok && kind == Truth
		default:
			ok = false
		}
		switch {
		case kind == "":
			return fmt.Errorf("%s: it has no output %.64q%s", typ, name, alternatives(name, slices.Sorted(maps.Keys(kinds))))
		case !ok:
			return fmt.Errorf("%s: its output %s is a %s", typ, name, kind)
		}
	}
	return nil
}

// alternatives says what a name may have been meant to be.
func alternatives(name string, known []string) string {
	if near := expr.Nearest(name, known); near != "" {
		return "; did you mean " + near + "?"
	}
	if len(known) == 0 {
		return "; there are none"
	}
	return "; there are " + listed(known)
}
