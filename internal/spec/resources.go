package spec

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/resource"
)

const (
	// maxResources bounds what one step, or one stage, may hold.
	maxResources = 32
	// maxSlots bounds how many may hold a slot of one name at once.
	maxSlots = 1000
	// defaultAcquire is how long the acquire script of a custom resource has.
	defaultAcquire = 5 * time.Minute
)

// Resource is something that each attempt of a step acquires before its process
// starts, and gives back when that is gone; or that a stage holds over all its steps.
type Resource struct {
	Kind string `json:"kind"`
	// Name may hold ${{ }} where it is that of a lock or a slot; evaluated, it
	// obeys [CheckResource].
	Name string `json:"name"`
	// Limit is how many may hold a slot at once.
	Limit int `json:"limit,omitempty"`
	// Acquire and Release are the scripts of a custom one, and Timeout how long
	// the first has.
	Acquire string        `json:"acquire,omitempty"`
	Release string        `json:"release,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Secrets are those that both scripts get, where a stage holds it.
	Secrets []string `json:"secrets,omitempty"`
	// Provider issues a credential.
	Provider string `json:"provider,omitempty"`
}

// MaxResource is how many bytes the name of a resource may have.
const MaxResource = 1024

// CheckResource says what is wrong with a name that expressions made.
func CheckResource(name string) error { return checkBusinessText("name", name, MaxResource) }

type rawResource struct {
	kind, name       val[string]
	limit            val[int]
	acquire, release val[string]
	timeout          val[time.Duration]
	secrets          val[[]val[string]]
	provider         val[string]
}

// resourceKind is one kind of resource as files may write it.
type resourceKind struct {
	name string
	// object is nil, and hint says what to do, where it is no kind here.
	object *object[rawResource]
	hint   string
}

// resourceKinds are those of steps, in the order in which they are listed to people.
func resourceKinds() []resourceKind {
	free, plain := oneLine("a name"), named(nodeNames("a resource"))
	object := func(kind, article string, name kind[string], more ...field[rawResource]) resourceKind {
		fields := append([]field[rawResource]{
			must(key("kind", word(kind), func(r *rawResource) *val[string] { return &r.kind })),
			must(key("name", name, func(r *rawResource) *val[string] { return &r.name })),
		}, more...)
		return resourceKind{name: kind, object: &object[rawResource]{name: article, def: kind + "Resource", fields: fields}}
	}
	return []resourceKind{
		object(resource.KindLock, "a lock", free),
		object(resource.KindSlot, "a slot", free,
			must(key("limit", integer(maxSlots), func(r *rawResource) *val[int] { return &r.limit }))),
		object(resource.KindPort, "a port", plain),
		object(resource.KindTempDir, "a temp_dir", plain),
		object(resource.KindCustom, "a custom resource", plain,
			must(key("acquire", script(), func(r *rawResource) *val[string] { return &r.acquire })),
			must(key("release", releaseScript(), func(r *rawResource) *val[string] { return &r.release })),
			key("timeout", duration(time.Second), func(r *rawResource) *val[time.Duration] { return &r.timeout })).
			never("secrets", "its scripts get those of the step"),
		object(resource.KindCredential, "a credential", named(credentialNames()),
			must(key("provider", named(nodeNames("a provider")), func(r *rawResource) *val[string] { return &r.provider }))),
	}
}

// releaseScript is a script that needs no file of the workspace: that may be gone
// by then, and the host too.
func releaseScript() kind[string] {
	s := script()
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			text, ok := s.read(p, n)
			first := strings.TrimSpace(text)
			if ok && (strings.HasPrefix(first, "./") || strings.HasPrefix(first, "../")) {
				p.errorf(n, "write the commands out, or use an absolute path",
					"release begins with a file of the workspace, which may be gone when it runs")
				return text, false
			}
			return text, ok
		},
		schema: s.schema,
	}
}

// never has a kind refuse a key, with the reason.
func (k resourceKind) never(key, why string) resourceKind {
	k.object.never = map[string]string{key: why}
	return k
}

// resourceOf is a resource of whichever of some kinds it says that it is.
func resourceOf(kinds []resourceKind) kind[rawResource] {
	names := make([]string, len(kinds))
	var here []string
	for i, k := range kinds {
		if names[i] = k.name; k.object != nil {
			here = append(here, k.name)
		}
	}
	which := word(here...)
	return kind[rawResource]{
		read: func(p *parser, n *yaml.Node) (rawResource, bool) {
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "write {kind: lock, name: …}", "expected a resource, found %s", found(n))
				return rawResource{}, false
			}
			for i := 0; i < len(n.Content); i += 2 {
				if n.Content[i].Value != "kind" {
					continue
				}
				at := resolve(n.Content[i+1])
				if i := slices.Index(names, at.Value); i >= 0 && kinds[i].object == nil {
					p.errorf(at, kinds[i].hint, "a %s is not possible in the resources of a stage", at.Value)
					return rawResource{}, false
				}
				name, ok := which.read(p, at)
				if !ok {
					return rawResource{}, false
				}
				return kinds[slices.Index(names, name)].object.read(p, n)
			}
			p.errorf(n, "add kind: "+joined(here, "or"), "a resource has no kind")
			return rawResource{}, false
		},
		schema: func(defs schemas) schema {
			var all []any
			for _, k := range kinds {
				if k.object != nil {
					all = append(all, k.object.kind().schema(defs))
				}
			}
			return schema{"anyOf": all}
		},
	}
}

// resources checks what a step holds and freezes it.
func (c *checker) resources(raw rawStep, names *scope) []Resource {
	out := c.held("step", raw.resources, names)
	for _, in := range raw.resources.v {
		if r := in.v; r.kind.v == resource.KindCredential && r.name.given() {
			c.ownVariable("of this step", r.name, raw.env.v, raw.secrets.v)
		}
	}
	return out
}

// held checks the resources of a step or a stage by themselves and freezes them.
func (c *checker) held(of string, list val[[]val[rawResource]], names *scope) []Resource {
	if len(list.v) > maxResources {
		c.p.errorf(list.node, "", "the %s has %d resources, at most %d are allowed", of, len(list.v), maxResources)
	}
	var out []Resource
	seen := map[string]string{}
	for _, in := range list.v {
		r := in.v
		out = append(out, Resource{
			Kind: r.kind.v, Name: r.name.v, Limit: r.limit.v, Acquire: r.acquire.v, Release: r.release.v, Provider: r.provider.v,
			Timeout: r.timeout.v, Secrets: values(r.secrets.v),
		})
		if r.kind.v == resource.KindCustom {
			out[len(out)-1].Timeout = r.timeout.or(defaultAcquire)
		}
		if !r.name.given() {
			continue
		}
		c.template(r.name, names)
		if !expr.Has(r.name.v) {
			if err := CheckResource(r.name.v); err != nil {
				c.p.errorf(r.name.node, "", "%s", err)
			}
		}
		as := r.as()
		switch other, twice := seen[as]; {
		case twice && other == r.name.v:
			c.p.errorf(r.name.node, "remove one of the two", "the %s %s stands twice in this %s", r.kind.v, r.name.v, of)
		case twice:
			c.p.errorf(r.name.node, "rename one of the two", "the %s %s and %s would be told to the step by one variable", r.kind.v, other, r.name.v)
		}
		seen[as] = r.name.v
	}
	return out
}

// as is what tells a resource from others of its holder: two of one kind whose
// variables have one name are not told apart.
func (r *rawResource) as() string { return r.kind.v + " " + resource.EnvName(r.name.v) }

// credentialNames is the rule for credentials: variables, save those without which
// a step does not run as it should.
func credentialNames() naming {
	n := envNames("a credential")
	n.not += `|^(PATH|HOME|TMPDIR|CI|PWD|OLDPWD|IFS|ENV|BASH_ENV|SHELL|USER|LOGNAME|LD_PRELOAD|LD_LIBRARY_PATH)$`
	n.why = "that is a variable which every step has, or one of Belay's own"
	n.notRE = regexp.MustCompile(n.not)
	return n
}

// ownVariable refuses a credential by the name of something else that who holds it
// gets.
func (c *checker) ownVariable(of string, name val[string], env []entry[string], secrets []val[string]) {
	taken := slices.ContainsFunc(env, func(e entry[string]) bool { return e.key == name.v }) ||
		slices.ContainsFunc(secrets, func(s val[string]) bool { return s.v == name.v })
	if taken {
		c.p.errorf(name.node, "rename one of the two", "the credential %s has the name of a variable or secret %s", name.v, of)
	}
}

// Holds reports whether the step has a resource of one of the kinds, or of any
// where none is named.
func (s *Step) Holds(kinds ...string) bool {
	return slices.ContainsFunc(s.Resources, func(r Resource) bool { return len(kinds) == 0 || slices.Contains(kinds, r.Kind) })
}
