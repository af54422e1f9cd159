package spec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/task"
)

// defaultLightTimeout is how long a built-in step may take that says nothing: it
// is meant to take well under a second.
const defaultLightTimeout = 5 * time.Second

// lightStep checks what only a built-in step has.
func (c *checker) lightStep(in val[rawStep], ctx stepContext, out *Step) {
	raw := in.v
	t, known := builtin().Get(raw.uses.v)
	if !known {
		return
	}
	out.Labels = envOf(raw.labels.v)
	if t.Name() != usesNoop || len(raw.with.v) > 0 {
		c.lightTimeout(raw.timeout, ctx.holder.timeout, out)
	}
	if codes := raw.retry.v.exitCodes; codes.given() {
		c.p.errorf(codes.node, "remove it", "exit_codes: not possible in a step with uses, which has no exit code")
	}
	c.useSecrets(raw.secrets.v...)
	c.lightOutputs(t, raw.outputs.v)
	if len(raw.with.v) == 0 {
		return
	}
	out.With = raw.params
	c.lightSecrets(t, raw)
	written := true // without an expression
	for _, e := range raw.with.v {
		if _, read := raw.params[e.key]; read {
			written = c.param(paramOf(t.Params(), e.key), e.val.v, ctx.scopes.steps) && written
		} else {
			written = written && plain(e.val.v)
		}
	}
	if written {
		c.prepare(t, raw, out)
	}
}

// plain reports whether a value holds nothing that may be an expression.
func plain(n *yaml.Node) bool {
	return !strings.Contains(n.Value, "${{") && !slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return !plain(resolve(child)) })
}

// lightTimeout bounds a step that a worker's executor runs, which takes no longer
// timeout than task.MaxTimeout.
func (c *checker) lightTimeout(written val[time.Duration], holder time.Duration, out *Step) {
	switch {
	case !written.given():
		out.Timeout = min(max(defaultLightTimeout, 2*out.ExpectedDuration()), holder, task.MaxTimeout)
	case written.v > task.MaxTimeout:
		c.p.errorf(written.node, "at most "+short(task.MaxTimeout), "the timeout of a step with uses is %s, longer than light tasks may take (%s)",
			short(written.v), short(task.MaxTimeout))
	}
}

// param checks the expressions in a parameter, and reports whether there is none.
func (c *checker) param(param *task.Param, n *yaml.Node, names *scope) (written bool) {
	if n.Kind != yaml.ScalarNode {
		written = true
		for i, child := range n.Content {
			if n.Kind == yaml.SequenceNode || i%2 == 1 {
				written = c.param(param, resolve(child), names) && written
			}
		}
		return written
	}
	if n.ShortTag() != "!!str" || !strings.Contains(n.Value, "${{") {
		return true
	}
	if !takesOne(param) {
		c.templateAt(n, n.Value, names)
		return !hasExpr(n.Value)
	}
	refs, is, errs := c.expr.One(n.Value, names)
	if wants, ok := mismatch(param.Kind, is); !ok && len(errs) == 0 {
		errs = []*expr.Error{{Offset: strings.Index(n.Value, "${{"), Message: param.Name + " wants " + wants, Hint: "hand it another value"}}
	}
	c.reportExpr(n, errs)
	c.noteReads(refs)
	return false
}

// takesOne reports whether a parameter's value is one expression where it holds
// any.
func takesOne(param *task.Param) bool {
	switch param.Kind {
	case task.Number, task.Truth, task.Duration:
		return true
	case task.Text:
		return len(param.Enum) > 0
	case task.Texts, task.Table, task.Secret:
	}
	return false
}

// mismatch reports whether an expression of that kind can be a parameter of that
// one, and what this wants. A text may turn out to be whatever it says.
func mismatch(kind task.ParamKind, is expr.Kind) (wants string, ok bool) {
	switch kind {
	case task.Number:
		return "a whole number, the expression is true or false", is != expr.KindBool
	case task.Truth:
		return "true or false, the expression is a number", is != expr.KindInt && is != expr.KindNumber
	case task.Duration:
		return "a duration such as 5s, the expression is none", is == expr.KindText || is == expr.KindStatus
	case task.Text, task.Texts, task.Table, task.Secret:
	}
	return "", true
}

// lightSecrets checks that a step names only secrets that it lists, and lists
// none that it does not name.
func (c *checker) lightSecrets(t task.Type, raw rawStep) {
	listed, named := values(raw.secrets.v), map[string]bool{}
	for _, e := range raw.with.v {
		param := paramOf(t.Params(), e.key)
		if param == nil || param.Kind != task.Secret {
			continue
		}
		name := e.val.v.Value
		named[name] = true
		if !slices.Contains(listed, name) && !hasExpr(name) { // that is no name, which is said already
			c.p.errorf(e.val.v, "give it to the step: secrets: ["+name+"]", "%s: the secret %s is not in the secrets of this step", param.Name, name)
		}
	}
	for _, s := range raw.secrets.v {
		if !named[s.v] {
			c.p.warnf(s.node, "name it in with, or remove it", "the step is given the secret %s and does not name it", s.v)
		}
	}
}

// lightOutputs checks that the type has the outputs that the step declares.
func (c *checker) lightOutputs(t task.Type, list []val[string]) {
	c.stepOutputs(list)
	var names []string
	for _, f := range t.Outputs() {
		names = append(names, f.Name)
	}
	for _, o := range list {
		if slices.Contains(names, o.v) {
			continue
		}
		hint := "it has " + strings.Join(names, ", ")
		if len(names) == 0 {
			hint = "it has none"
		} else if near := expr.Nearest(o.v, names); near != "" {
			hint = "did you mean " + near + "?"
		}
		c.p.errorf(o.node, hint, "uses: %s has no output %s", t.Name(), o.v)
	}
}

// prepare has the type itself check what it is given, where no run decides about
// that. What is wrong with the shape of a parameter has been said.
func (c *checker) prepare(t task.Type, raw rawStep, out *Step) {
	with, err := out.Parameters(nil)
	if err != nil {
		c.p.errorf(raw.with.node, "", "uses: %s: %v", t.Name(), err)
		return
	}
	all, said := map[string]any{}, map[string]bool{}
	maps.Copy(all, with)
	at := map[string]*yaml.Node{}
	for _, param := range t.Params() {
		said[param.Name] = param.Required // that it is missing
	}
	for _, e := range raw.with.v {
		_, read := raw.params[e.key]
		at[e.key], said[e.key] = e.val.v, !read
		var value any
		if read || paramOf(t.Params(), e.key) == nil {
			continue
		}
		if err := e.val.v.Decode(&value); err != nil {
			return // nor can the type read it
		}
		all[e.key] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		return // it holds what only YAML has, which has been said
	}
	_, err = t.Prepare(text)
	for _, err := range each(err) {
		node := raw.with.node
		if wrong, ok := errors.AsType[*task.ParamError](err); ok {
			if said[wrong.Param] {
				continue
			}
			node = cmp.Or(at[wrong.Param], node)
		}
		c.p.errorf(node, "", "uses: %s: %v", t.Name(), err)
	}
}

// each is what an error says, one by one.
func each(err error) []error {
	if many, ok := errors.AsType[task.WrongError](err); ok {
		return many
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Parameters are what a built-in step is given, with its expressions evaluated.
func (s *Step) Parameters(names expr.Scope) (map[string]any, error) {
	if len(s.With) == 0 {
		return nil, nil //nolint:nilnil // it is given nothing
	}
	with, err := evaluated(s.With, names)
	if err != nil {
		return nil, fmt.Errorf("with.%w", err)
	}
	out, _ := with.(map[string]any)
	return out, nil
}

// evaluated is a value with the expressions in its texts evaluated, in an order
// that is always the same. An error begins with where it arose.
func evaluated(v any, names expr.Scope) (any, error) {
	switch v := v.(type) {
	case string:
		text, err := expr.String(v, names)
		if err != nil {
			return nil, fmt.Errorf(": %w", err)
		}
		return text, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = evaluated(v[i], names); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			var err error
			if out[name], err = evaluated(v[name], names); err != nil {
				return nil, within(name, err)
			}
		}
		return out, nil
	}
	return v, nil
}

// within puts a name before an error of what it holds.
func within(name string, err error) error {
	if strings.HasPrefix(err.Error(), ":") {
		return fmt.Errorf("%s%w", name, err)
	}
	return fmt.Errorf("%s.%w", name, err)
}
