package spec

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"belay.run/internal/expr"
)

var (
	// exprRE finds expressions, well enough to look at what is between them.
	exprRE = regexp.MustCompile(`\$\{\{.*?\}\}`)
	// shellRE finds what a shell would replace.
	shellRE = regexp.MustCompile("\\$\\(|\\$[{]?[A-Za-z_][A-Za-z0-9_]*|`")
)

// lintKey warns of keys that never find a duplicate, that find only duplicates,
// or that mix up what is apart.
func (c *checker) lintKey(k val[string], origins []origin) {
	changing := c.lintUnique(k, origins, "no two keys are ever equal, and nothing is a duplicate")
	c.lintText(k, "key")
	if !changing && !slices.ContainsFunc(origins, origin.varies) {
		c.p.warnf(k.node, `name what it is about: key: "deploy-${{ inputs.version }}"`,
			"the key is always equal: it reads nothing that differs between two requests, so that all of them are duplicates of each other")
		return
	}
	c.lintTenants(k, origins)
}

// lintGroup warns of groups in which no two ever meet.
func (c *checker) lintGroup(g val[string], origins []origin) {
	c.lintUnique(g, origins, "no two are ever in one group, and none waits for another")
	c.lintText(g, "group")
}

// varies reports whether what is read may differ between two requests.
func (o origin) varies() bool {
	switch o.Path[0] {
	case "inputs", "matrix":
		return true
	case "steps", "stages":
		return o.Kind != expr.KindStatus && o.Path[len(o.Path)-1] != "exit_code"
	}
	return false
}

// lintUnique warns of what differs each time, and reports whether it did.
func (c *checker) lintUnique(k val[string], origins []origin, so string) bool {
	warned := false
	for _, o := range origins {
		what := expr.Written(o.Path...)
		if o.via != "" {
			what += " (through env." + o.via + ")"
		}
		last := o.Path[len(o.Path)-1]
		switch {
		case o.Path[0] == "run" && last != "attempt":
			c.p.warnf(k.node, "read what the request is about, such as a version", "%s is another in each run: %s", what, so)
			warned = true
		case o.varies() && looksUnique(last):
			c.p.warnf(k.node, "read what the request is about, such as a version",
				"%s looks like a time or a random value: if it differs each time, %s", what, so)
			warned = true
		}
	}
	return warned
}

// lintText warns of what stays as it stands, and of expressions side by side.
func (c *checker) lintText(k val[string], what string) {
	if found := shellRE.FindString(exprRE.ReplaceAllString(k.v, "")); found != "" {
		c.p.warnf(k.node, "read an input: ${{ inputs.NAME }}", "%s stays as it stands: a %s is no script", quote(found), what)
	}
	if strings.Contains(k.v, "}}${{") {
		c.p.warnf(k.node, "put a - between them", "two expressions stand side by side: 1 and 23 make the same %s as 12 and 3", what)
	}
}

// lintTenants warns of a key that does not read an input by which tenants are
// told apart: Belay knows its own tenants only.
func (c *checker) lintTenants(k val[string], origins []origin) {
	for _, name := range c.tenants {
		read := func(o origin) bool { return o.Path[0] == "inputs" && o.Path[1] == name }
		if !slices.ContainsFunc(origins, read) {
			c.p.warnf(k.node, "add ${{ "+expr.Written("inputs", name)+" }} to the key",
				"the key does not read the input %s: the same request of two of them counts as one", name)
			return // said of one of them, it is understood
		}
	}
}

// tenantInputs are the inputs by which tenants are told apart.
func tenantInputs(inputs []Input) []string {
	var names []string
	for _, in := range inputs {
		if looksLikeTenant(in.Name) {
			names = append(names, in.Name)
		}
	}
	return names
}

// looksUnique reports whether a name is one of a time or of a random value.
func looksUnique(name string) bool {
	words := wordsOf(name)
	if last := words[len(words)-1]; last == "at" || last == "time" || last == "ts" {
		return true
	}
	return slices.ContainsFunc(words, func(w string) bool {
		return slices.Contains([]string{
			"timestamp", "datetime", "now", "epoch", "unixtime", "uuid", "guid", "ulid", "nonce", "random", "rand",
		}, w)
	})
}

// looksLikeTenant reports whether a name is one by which tenants are told apart.
func looksLikeTenant(name string) bool {
	words := wordsOf(name)
	if last := words[len(words)-1]; last == "id" || last == "name" || last == "slug" {
		words = words[:max(1, len(words)-1)]
	}
	return slices.Contains([]string{"tenant", "customer", "organization", "organisation", "org"}, words[len(words)-1])
}

// wordsOf are the words of a name, in lower case: built_at and builtAt are both
// built and at.
func wordsOf(name string) []string {
	var b strings.Builder
	before := rune(0)
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		if r == '_' || r == '-' {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	if words := strings.Fields(b.String()); len(words) > 0 {
		return words
	}
	return []string{name}
}
