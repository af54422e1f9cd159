package spec

import (
	"maps"
	"slices"

	"belay.run/internal/expr"
)

// useSecrets checks the secrets that something is given:
// they must be declared, and none may stand there twice.
func (c *checker) useSecrets(list ...val[string]) {
	seen := map[string]bool{}
	for _, s := range list {
		switch {
		case !s.given():
			continue
		case !c.secrets[s.v]:
			hint := "declare it at the top of the file: secrets: [" + s.v + "]"
			if near := expr.Nearest(s.v, slices.Sorted(maps.Keys(c.secrets))); near != "" {
				hint = "did you mean " + near + "?"
			}
			c.p.errorf(s.node, hint, "the secret %s is not declared", s.v)
		case seen[s.v]:
			c.p.errorf(s.node, "remove one of the two", "%s stands twice in secrets", s.v)
		}
		seen[s.v], c.usedSecrets[s.v] = true, true
	}
}

// besideSecrets refuses variables that have the name of a secret which is given
// beside them.
func (c *checker) besideSecrets(what string, env []entry[string], secrets []val[string]) {
	for _, e := range env {
		if slices.ContainsFunc(secrets, func(s val[string]) bool { return s.v == e.key }) {
			c.p.errorf(e.at, "rename the variable", "the variable %s has the name of a secret of this %s", e.key, what)
		}
	}
}
