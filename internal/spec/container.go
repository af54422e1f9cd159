package spec

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"
)

// Container is the container that a step's script runs in. Image may hold ${{ }}.
type Container struct {
	Image Image `json:"image"`
	// Entrypoint is what runs before the shell of the script; the image's own
	// program is not started.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// User is "name", "uid" or "uid:gid"; empty is the worker's own user.
	User string `json:"user,omitempty"`
	// Network is NetworkNone, NetworkHost, or empty for that of the stage's
	// services, and the engine's default where it has none.
	Network    string  `json:"network,omitempty"`
	CPUs       float64 `json:"cpus,omitempty"`
	Mounts     []Mount `json:"mounts,omitempty"`
	Privileged bool    `json:"privileged,omitempty"`
}

// Image names an image, and says when and how it is fetched.
type Image struct {
	Name string `json:"name"`
	// Pull is PullMissing, PullAlways or PullNever.
	Pull string `json:"pull"`
	// Login is nil where the worker's own logins are to be used.
	Login *Login `json:"login,omitempty"`
}

// Login is a user of a registry. Password is the name of a secret.
type Login struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Mount is a folder of the host in a container, which the settings of the worker
// must allow.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// When an image is fetched.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// Networks of a container that are not of its stage.
const (
	NetworkNone = "none"
	NetworkHost = "host"
)

// maxCPUs bounds how many processors a container may be given.
const maxCPUs = 1024

// CheckImage says what is wrong with the name of an image. It is for names that
// expressions made.
func CheckImage(name string) error {
	if _, err := reference.ParseNormalizedNamed(name); err != nil {
		return fmt.Errorf("%s is no name of an image: %w", quote(name), err)
	}
	return nil
}

type rawImage struct {
	name, pull val[string]
	login      val[rawLogin]
}

type rawLogin struct{ username, password val[string] }

type rawContainer struct {
	rawImage

	entrypoint    val[[]val[string]]
	user, network val[string]
	cpus          val[float64]
	mounts        val[[]val[rawMount]]
	privileged    val[bool]
}

type rawMount struct {
	source, target val[string]
	readOnly       val[bool]
}

// imageFields are the keys that tell an image.
func imageFields[T any](at func(*T) *rawImage) []field[T] {
	return []field[T]{
		must(key("name", filled("the name of an image"), func(o *T) *val[string] { return &at(o).name })),
		key("pull", word(PullMissing, PullAlways, PullNever), func(o *T) *val[string] { return &at(o).pull }),
		key("login", loginObject().kind(), func(o *T) *val[rawLogin] { return &at(o).login }),
	}
}

func loginObject() *object[rawLogin] {
	return &object[rawLogin]{
		name: "a login",
		def:  "login",
		fields: []field[rawLogin]{
			must(key("username", filled("a user name"), func(l *rawLogin) *val[string] { return &l.username })),
			must(key("password", named(envNames("a secret")), func(l *rawLogin) *val[string] { return &l.password })),
		},
	}
}

func containerObject() *object[rawContainer] {
	return &object[rawContainer]{
		name: "an image",
		def:  "container",
		never: map[string]string{
			"memory":  "it stands in limits, beside image: limits: {memory: 2GiB}",
			"pids":    "it stands in limits, beside image: limits: {pids: 200}",
			"env":     "it stands beside image",
			"command": "run says what runs in the container",
		},
		fields: append(imageFields(func(c *rawContainer) *rawImage { return &c.rawImage }),
			key("entrypoint", someOf(argument(), "arguments"), func(c *rawContainer) *val[[]val[string]] { return &c.entrypoint }),
			key("user", userName(), func(c *rawContainer) *val[string] { return &c.user }),
			key("network", word(NetworkNone, NetworkHost), func(c *rawContainer) *val[string] { return &c.network }),
			key("cpus", factor(0.01, maxCPUs), func(c *rawContainer) *val[float64] { return &c.cpus }),
			key("mounts", listOf(mountObject().kind(), "mounts"), func(c *rawContainer) *val[[]val[rawMount]] { return &c.mounts }),
			key("privileged", boolean(), func(c *rawContainer) *val[bool] { return &c.privileged }),
		),
	}
}

func mountObject() *object[rawMount] {
	return &object[rawMount]{
		name: "a mount",
		def:  "mount",
		fields: []field[rawMount]{
			must(key("source", folder(), func(m *rawMount) *val[string] { return &m.source })),
			must(key("target", folder(), func(m *rawMount) *val[string] { return &m.target })),
			key("read_only", boolean(), func(m *rawMount) *val[bool] { return &m.readOnly }),
		},
	}
}

// nameOr is the bare name of an image, or a map that says more.
func nameOr[T any](o *object[T], name func(*T) *val[string]) kind[T] {
	bare := filled("the name of an image")
	return kind[T]{
		read: func(p *parser, n *yaml.Node) (T, bool) {
			if n.Kind == yaml.MappingNode {
				return o.read(p, n)
			}
			var out T
			s, ok := bare.read(p, n)
			*name(&out) = val[string]{s, n}
			return out, ok
		},
		schema: func(defs schemas) schema {
			return schema{"anyOf": []any{bare.schema(defs), o.kind().schema(defs)}}
		},
	}
}

func containerKind() kind[rawContainer] {
	return nameOr(containerObject(), func(c *rawContainer) *val[string] { return &c.name })
}

// argument is one argument of a command line, in which no expression may stand:
// programs take arguments for code as well.
func argument() kind[string] {
	return patterned("an argument", `^(?s:[^$]|\$[^{]|\$\{[^{])*\$?\$?\{?$`, "hand the value over by env")
}

// folder is an absolute path without anything that leads elsewhere.
func folder() kind[string] {
	return patterned("an absolute path", `^(/[^/:,\x00-\x1f]+)+$`, "write it as /var/cache/go, without : and ,")
}

// userName is a user of a container, with or without its group.
func userName() kind[string] {
	const one = `[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}`
	return patterned("a user", `^`+one+`(:`+one+`)?$`, `write it as "1000", "1000:1000" or a name`)
}

// patterned is text of a form.
func patterned(what, pattern, hint string) kind[string] {
	re := regexp.MustCompile(pattern)
	t := text()
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := t.read(p, n)
			if ok && !re.MatchString(s) {
				p.errorf(n, hint, "expected %s, found %s", what, found(n))
				return s, false
			}
			return s, ok
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": pattern} },
	}
}

// container checks the image of a step and freezes it; nil where it has none.
func (c *checker) container(raw rawStep, names *scope) *Container {
	if !raw.image.given() {
		return nil
	}
	in := raw.image.v
	out := &Container{
		Image: c.image(in.rawImage, names), Entrypoint: values(in.entrypoint.v), User: in.user.v,
		Network: in.network.v, CPUs: in.cpus.v, Privileged: in.privileged.v,
	}
	targets := map[string]int{}
	for _, m := range in.mounts.v {
		if t := m.v.target; t.given() {
			if line, twice := targets[path.Clean(t.v)]; twice {
				c.p.errorf(t.node, "mount one of the two elsewhere", "mounts: %s is the target of another mount, in line %d", quote(t.v), line)
			}
			targets[path.Clean(t.v)] = t.node.Line
		}
		for _, p := range []val[string]{m.v.source, m.v.target} {
			if p.given() && slices.Contains(strings.Split(p.v, "/"), "..") {
				c.p.errorf(p.node, "write the path out", "mounts: the path %s holds ..", quote(p.v))
			}
		}
		out.Mounts = append(out.Mounts, Mount{Source: path.Clean(m.v.source.v), Target: path.Clean(m.v.target.v), ReadOnly: m.v.readOnly.v})
	}
	if t := raw.limits.v.cpuTime; t.given() {
		c.p.errorf(t.node, "set a timeout, or cpus in image", "cpu_time: not supported in this version for a step with an image")
	}
	return out
}

func (c *checker) image(in rawImage, names *scope) Image {
	out := Image{Name: in.name.v, Pull: in.pull.or(PullMissing)}
	c.template(in.name, names)
	if in.name.given() && !hasExpr(in.name.v) {
		if err := CheckImage(in.name.v); err != nil {
			c.p.errorf(in.name.node, "write it as golang:1.26 or registry.example/team/tools:1.2", "%s", err)
		}
	}
	if in.login.given() {
		l := in.login.v
		c.useSecrets(l.password)
		out.Login = &Login{Username: l.username.v, Password: l.password.v}
	}
	return out
}
