package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
)

// Names of attributes of spans.
const (
	AttrTenant   = "belay.tenant"
	AttrProject  = "belay.project"
	AttrPipeline = "belay.pipeline"
	AttrRun      = "belay.run"
	AttrNode     = "belay.node"
	AttrAttempt  = "belay.attempt"
	AttrStatus   = "belay.status"
	AttrTrigger  = "belay.trigger"
	// AttrDedup is what was decided about a key.
	AttrDedup = "belay.dedup"
	// AttrDuplicateOf is the run that stands for one, or for a step of it.
	AttrDuplicateOf = "belay.duplicate_of"
)

// Scope says for whom something is done. It goes along with a trace, and into the
// log lines of workflows.
type Scope struct {
	Tenant, Project, Pipeline string
	// Run is the run's key.
	Run string
	// Node is a stage or a step; empty: the run itself.
	Node string
}

// pairs are the names and values of a scope that has them.
func (s *Scope) pairs(each func(name, value string)) {
	for _, p := range [...][2]string{
		{AttrTenant, s.Tenant}, {AttrProject, s.Project}, {AttrPipeline, s.Pipeline}, {AttrRun, s.Run}, {AttrNode, s.Node},
	} {
		if p[1] != "" {
			each(p[0], p[1])
		}
	}
}

// Attributes are a scope's as those of a span.
func (s *Scope) Attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	s.pairs(func(name, value string) { out = append(out, attribute.String(name, value)) })
	return out
}

type scopeKey struct{}

// ScopeOf is the scope in which an activity runs. Without a trace there is none.
func ScopeOf(ctx context.Context) Scope {
	s, _ := ctx.Value(scopeKey{}).(Scope)
	return s
}
