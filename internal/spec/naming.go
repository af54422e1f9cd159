package spec

import (
	"regexp"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/run"
)

// naming is a rule for names.
type naming struct {
	what          string
	pattern, hint string
	re            *regexp.Regexp
	// not is a pattern of names that are Belay's own, why the reason.
	not, why string
	notRE    *regexp.Regexp
}

// nodeNames is the rule for pipelines, stages, steps, inputs and outputs.
func nodeNames(what string) naming {
	const pattern = `^[A-Za-z_][A-Za-z0-9_-]{0,62}$`
	return naming{
		what: what, pattern: pattern, re: regexp.MustCompile(pattern),
		hint: "use letters, digits, _ and -, at most 63, and begin with a letter or _",
	}
}

// stageNames is the rule for stages: the finally steps of the pipeline have the
// node path that a stage of that name would have.
func stageNames() naming {
	n := nodeNames("a stage")
	n.not, n.why = `^`+run.FinallyStage+`$`, "the finally steps of the pipeline bear it"
	n.notRE = regexp.MustCompile(n.not)
	return n
}

// envNames is the rule for variables and secrets.
func envNames(what string) naming {
	const pattern = `^[A-Za-z_][A-Za-z0-9_]{0,127}$`
	n := naming{
		what: what, pattern: pattern, re: regexp.MustCompile(pattern),
		hint: "use letters, digits and _, and begin with a letter or _",
		not:  `^[Bb][Ee][Ll][Aa][Yy]_`, why: "names that begin with BELAY_ are Belay's own",
	}
	n.notRE = regexp.MustCompile(n.not)
	return n
}

func (r naming) check(p *parser, n *yaml.Node, name string) bool {
	if !r.re.MatchString(name) {
		p.errorf(n, r.hint, "%s is no name for %s", quote(name), r.what)
		return false
	}
	if r.notRE != nil && r.notRE.MatchString(name) {
		p.errorf(n, "choose another name", "%s is no name for %s: %s", quote(name), r.what, r.why)
		return false
	}
	return true
}

func (r naming) schema() schema {
	s := schema{"type": "string", "pattern": r.pattern}
	if r.not != "" {
		s["not"] = schema{"pattern": r.not}
	}
	return s
}

func named(r naming) kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
				p.errorf(n, quoteHint(n), "expected a name for %s, found %s", r.what, found(n))
				return "", false
			}
			return n.Value, r.check(p, n, n.Value)
		},
		schema: func(schemas) schema { return r.schema() },
	}
}
