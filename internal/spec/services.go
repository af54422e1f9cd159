package spec

import (
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// Service is a container that runs beside the steps of a stage, such as a
// database. They find it by its name from other containers, and by variables.
// Its image and env may hold ${{ }}.
type Service struct {
	Name    string            `json:"name"`
	Image   Image             `json:"image"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`
	Ports   []int             `json:"ports,omitempty"`
	Health  Health            `json:"health"`
	// Limits are nil where the file sets none.
	Limits *ServiceLimits `json:"limits,omitempty"`
}

// ServiceLimits bound what a service may use; 0 is no bound.
type ServiceLimits struct {
	Memory int64   `json:"memory,omitempty"`
	PIDs   int     `json:"pids,omitempty"`
	CPUs   float64 `json:"cpus,omitempty"`
}

// Health says when a service is ready. With no command the check of its image
// says it; without that too it is ready when it runs.
type Health struct {
	Command  string        `json:"command,omitempty"`
	Interval time.Duration `json:"interval"`
	// Timeout is how long it may take until it is ready.
	Timeout time.Duration `json:"timeout"`
}

const (
	maxServices  = 20
	maxPort      = 65535
	defaultProbe = time.Second
	defaultReady = time.Minute
)

type rawService struct {
	name    val[string]
	image   val[rawImage]
	command val[[]val[string]]
	env     val[[]entry[string]]
	secrets val[[]val[string]]
	ports   val[[]val[int]]
	health  val[rawHealth]
	limits  val[rawServiceLimits]
}

type rawServiceLimits struct {
	memory val[int64]
	pids   val[int]
	cpus   val[float64]
}

type rawHealth struct {
	command           val[string]
	interval, timeout val[time.Duration]
}

// serviceNames is the rule for services: their names are host names.
func serviceNames() naming {
	const pattern = `^[a-z][a-z0-9-]{0,30}[a-z0-9]$|^[a-z]$`
	n := naming{
		what: "a service", pattern: pattern, re: regexp.MustCompile(pattern),
		hint: "use lower-case letters, digits and -, at most 32, and begin with a letter",
		not:  `^localhost$`, why: "a container reaches itself by it",
	}
	n.notRE = regexp.MustCompile(n.not)
	return n
}

func serviceObject() *object[rawService] {
	image := &object[rawImage]{
		name: "the image of a service", def: "serviceImage",
		never:  map[string]string{"entrypoint": "the arguments of a service's own program stand in command, beside image"},
		fields: imageFields(func(i *rawImage) *rawImage { return i }),
	}
	return &object[rawService]{
		name:  "a service",
		def:   "service",
		later: []string{"resources", "network", "mounts"},
		fields: []field[rawService]{
			must(key("name", named(serviceNames()), func(s *rawService) *val[string] { return &s.name })),
			must(key("image", nameOr(image, func(i *rawImage) *val[string] { return &i.name }), func(s *rawService) *val[rawImage] { return &s.image })),
			key("command", someOf(argument(), "arguments"), func(s *rawService) *val[[]val[string]] { return &s.command }),
			key("env", env(), func(s *rawService) *val[[]entry[string]] { return &s.env }),
			key("secrets", listOf(named(envNames("a secret")), "secrets"), func(s *rawService) *val[[]val[string]] { return &s.secrets }),
			key("ports", someOf(integer(maxPort), "ports"), func(s *rawService) *val[[]val[int]] { return &s.ports }),
			key("health", healthObject().kind(), func(s *rawService) *val[rawHealth] { return &s.health }),
			key("limits", serviceLimitsObject().kind(), func(s *rawService) *val[rawServiceLimits] { return &s.limits }),
		},
	}
}

func serviceLimitsObject() *object[rawServiceLimits] {
	return &object[rawServiceLimits]{
		name: "the limits of a service",
		def:  "serviceLimits",
		never: map[string]string{
			"cpu": "cpus is how many processors it may use, such as 1.5", "cpu_time": "a service runs as long as its stage; cpus bounds how fast it computes",
		},
		fields: []field[rawServiceLimits]{
			key("memory", size(minMemory), func(l *rawServiceLimits) *val[int64] { return &l.memory }),
			key("pids", integer(maxPIDs), func(l *rawServiceLimits) *val[int] { return &l.pids }),
			key("cpus", factor(0.01, maxCPUs), func(l *rawServiceLimits) *val[float64] { return &l.cpus }),
		},
	}
}

// limits are those of a service, nil where it sets none.
func (raw rawServiceLimits) limits() *ServiceLimits {
	l := ServiceLimits{Memory: raw.memory.v, PIDs: raw.pids.v, CPUs: raw.cpus.v}
	if l == (ServiceLimits{}) {
		return nil
	}
	return &l
}

func healthObject() *object[rawHealth] {
	return &object[rawHealth]{
		name: "a health check",
		def:  "health",
		fields: []field[rawHealth]{
			key("command", script(), func(h *rawHealth) *val[string] { return &h.command }),
			key("interval", duration(100*time.Millisecond), func(h *rawHealth) *val[time.Duration] { return &h.interval }),
			key("timeout", duration(time.Second), func(h *rawHealth) *val[time.Duration] { return &h.timeout }),
		},
	}
}

// services checks the services of a stage and freezes them.
func (c *checker) services(list val[[]val[rawService]], stage time.Duration, names *scope) []Service {
	if len(list.v) > maxServices {
		c.p.errorf(list.node, "", "the stage has %d services, at most %d are allowed", len(list.v), maxServices)
	}
	var out []Service
	seen := map[string]*yaml.Node{}
	for _, in := range list.v {
		s := in.v
		if first := seen[s.name.v]; first != nil && s.name.given() {
			c.p.errorf(s.name.node, "rename one of the two", "the service %s stands here twice, first in line %d", s.name.v, first.Line)
		}
		seen[s.name.v] = s.name.node
		c.templates(s.env.v, names)
		c.useSecrets(s.secrets.v...)
		c.besideSecrets("service", s.env.v, s.secrets.v)
		c.uniquePorts(s.ports.v)
		h := s.health.v
		c.fits(h.timeout, "the timeout of the health check", stage, "the timeout of the stage", true)
		out = append(out, Service{
			Name: s.name.v, Image: c.image(s.image.v, names), Command: values(s.command.v), Env: envOf(s.env.v),
			Secrets: values(s.secrets.v), Ports: values(s.ports.v), Limits: s.limits.v.limits(),
			Health: Health{Command: h.command.v, Interval: h.interval.or(defaultProbe), Timeout: h.timeout.or(min(defaultReady, stage))},
		})
	}
	return out
}

func (c *checker) uniquePorts(list []val[int]) {
	seen := map[int]bool{}
	for _, p := range list {
		if seen[p.v] {
			c.p.errorf(p.node, "remove one of the two", "port %d stands here twice", p.v)
		}
		seen[p.v] = true
	}
}
