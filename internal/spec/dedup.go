package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/run"
)

// maxGroupLimit is how many a concurrency group may let run at once.
const maxGroupLimit = 1000

func pipelineDedupObject() *object[rawDedup] {
	return dedupObject("pipelineDedup", word(OnDuplicateAttach, OnDuplicateReject, OnDuplicateReplace))
}

func stepDedupObject() *object[rawDedup] { return dedupObject("stepDedup", stepDuplicate()) }

// dedupObject is a dedup; those of pipelines and steps differ in what they may
// do with a duplicate.
func dedupObject(def string, onDuplicate kind[string]) *object[rawDedup] {
	return &object[rawDedup]{
		name:  "dedup",
		def:   def,
		never: map[string]string{"risk": "it stands beside dedup"},
		fields: []field[rawDedup]{
			must(key("key", oneLine("a key"), func(d *rawDedup) *val[string] { return &d.key })),
			key("window", window(), func(d *rawDedup) *val[time.Duration] { return &d.window }),
			key("on_duplicate", onDuplicate, func(d *rawDedup) *val[string] { return &d.onDuplicate }),
			key("on_mismatch", word(OnDuplicateAttach, OnDuplicateReject), func(d *rawDedup) *val[string] { return &d.onMismatch }),
			key("claim_timeout", duration(time.Second), func(d *rawDedup) *val[time.Duration] { return &d.claimTimeout }),
		},
	}
}

func concurrencyObject() *object[rawConcurrency] {
	return &object[rawConcurrency]{
		name: "concurrency",
		def:  "concurrency",
		fields: []field[rawConcurrency]{
			must(key("group", oneLine("a group"), func(c *rawConcurrency) *val[string] { return &c.group })),
			key("limit", integer(maxGroupLimit), func(c *rawConcurrency) *val[int] { return &c.limit }),
			key("on_full", word(OnFullQueue, OnFullCancelRunning, OnFullReject), func(c *rawConcurrency) *val[string] { return &c.onFull }),
		},
	}
}

// stepDuplicate is what a step does as a duplicate: it cannot replace another,
// which belongs to a run that goes on.
func stepDuplicate() kind[string] {
	known := word(OnDuplicateAttach, OnDuplicateReject)
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind == yaml.ScalarNode && n.Value == OnDuplicateReplace {
				p.errorf(n, "write attach or reject, or give the pipeline a key that replaces",
					"on_duplicate: replace is possible for pipelines only: a step cannot end another run")
				return "", false
			}
			return known.read(p, n)
		},
		schema: known.schema,
	}
}

// window is a duration, or auto, which is 0.
func window() kind[time.Duration] {
	d := duration(time.Second)
	return kind[time.Duration]{
		read: func(p *parser, n *yaml.Node) (time.Duration, bool) {
			if n.Kind == yaml.ScalarNode && n.Value == WindowAuto {
				return 0, true
			}
			if near := expr.Nearest(n.Value, []string{WindowAuto}); near != "" && n.Kind == yaml.ScalarNode {
				p.errorf(n, "did you mean "+near+"?", "expected a duration or auto, found %s", found(n))
				return 0, false
			}
			return d.read(p, n)
		},
		schema: func(defs schemas) schema {
			return schema{"anyOf": []any{schema{"enum": []any{WindowAuto}}, d.schema(defs)}}
		},
	}
}

// oneLine is a text of one line that is not empty.
func oneLine(what string) kind[string] {
	f := filled(what)
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := f.read(p, n)
			if ok && strings.ContainsFunc(s, unicode.IsControl) {
				p.errorf(n, "", "%s is one line of text without control characters", what)
				return "", false
			}
			return s, ok
		},
		schema: f.schema,
	}
}

// CheckKey says what is wrong with a key that expressions made.
func CheckKey(key string) error { return checkBusinessText("key", key, MaxKey) }

// CheckGroup says what is wrong with the name of a group that expressions made.
func CheckGroup(group string) error {
	if strings.HasPrefix(group, run.QuotaGroup) {
		return fmt.Errorf("the group %q: names that begin with %s are kept for quotas of tenants", group, run.QuotaGroup)
	}
	return checkBusinessText("group", group, MaxGroup)
}

func checkBusinessText(what, s string, limit int) error {
	switch {
	case strings.TrimSpace(s) == "":
		return fmt.Errorf("the %s is empty", what)
	case len(s) > limit:
		return fmt.Errorf("the %s is %d bytes long, at most %d are allowed", what, len(s), limit)
	case !utf8.ValidString(s):
		return fmt.Errorf("the %s is not valid UTF-8", what)
	case strings.ContainsFunc(s, unicode.IsControl):
		return errors.New("the " + what + " holds a control character")
	}
	return nil
}

// pipelineOnce checks the key and the group of the pipeline.
func (c *checker) pipelineOnce(raw rawFile, plan *Plan) {
	if raw.dedup.given() {
		names := c.earlyScope("each run has its own, so that no two keys would be equal")
		k := c.key(raw.dedup, names, []envLayer{c.pipelineLayer}, onceHolder{"the pipeline", plan.Timeout, raw.timeout.given()})
		plan.Dedup = k.dedup
		plan.Dedup.Env = k.variables
	}
	plan.Risk = c.risk(raw.risk, raw.dedup, raw.dedup.given())
	if raw.concurrency.given() {
		names := c.earlyScope("each run has its own, so that no two would be in one group")
		plan.Concurrency = c.concurrency(raw.concurrency, names)
	}
}

// stepOnce checks the key of a step.
func (c *checker) stepOnce(raw rawStep, ctx stepContext, out *Step) {
	if !raw.dedup.given() {
		out.Risk = c.risk(raw.risk, raw.dedup, false)
		if out.Risk == RiskLow {
			c.p.warnf(raw.risk.node, "remove it, or add dedup: {key: …}", "risk has no effect without dedup")
		}
		return
	}
	layers := slices.Concat([]envLayer{layerOf(raw.env.v, ctx.ownScope(raw.env.v))}, ctx.layers)
	k := c.key(raw.dedup, ctx.keyScope(raw.env.v), layers, onceHolder{"the step", out.Timeout, raw.timeout.given()})
	out.Dedup, out.Risk = k.dedup, c.risk(raw.risk, raw.dedup, true)
	c.noteKey(raw, ctx.stage, layers, k)
}

// risk is what is written, or high where there is a key.
func (c *checker) risk(written val[Risk], dedup val[rawDedup], keyed bool) Risk {
	if !keyed {
		if written.v == RiskHigh {
			c.p.errorf(written.node, "add dedup: {key: …}, or remove it", "risk: high without a key: nothing can tell that it runs twice")
		}
		return written.v
	}
	if written.v == RiskLow && dedup.v.claimTimeout.given() {
		c.p.warnf(dedup.v.claimTimeout.node, "remove it, or risk: low", "claim_timeout has no effect: at low risk nothing waits for Redis")
	}
	return written.or(RiskHigh)
}

// onceHolder is what has a key: its timeout bounds a sensible window.
type onceHolder struct {
	name    string
	timeout time.Duration
	written bool
}

// checkedKey is a key and the values that it is made of.
type checkedKey struct {
	dedup *Dedup
	// variables are those that it reads, sorted.
	variables []string
	// origins are what the key reads in the end: a variable counts as what it
	// is made of itself.
	origins []origin
	// broken is set where its expressions are wrong, which has been said.
	broken bool
}

// key checks a dedup and freezes it.
func (c *checker) key(in val[rawDedup], names *scope, layers []envLayer, of onceHolder) checkedKey {
	raw := in.v
	out := checkedKey{dedup: &Dedup{
		Key:          raw.key.v,
		Window:       raw.window.v,
		OnDuplicate:  raw.onDuplicate.or(OnDuplicateAttach),
		OnMismatch:   raw.onMismatch.or(OnDuplicateAttach),
		ClaimTimeout: raw.claimTimeout.or(defaultClaimTimeout),
	}}
	if !raw.key.given() {
		out.broken = true
		return out
	}
	refs, errs := c.expr.String(raw.key.v, names)
	c.reportExpr(raw.key.node, errs)
	c.noteReads(refs)
	out.variables = namesOf("env", refs)
	out.origins, out.broken = c.origins(refs, layers), len(errs) > 0
	if !expr.Has(raw.key.v) {
		if err := CheckKey(raw.key.v); err != nil {
			c.p.errorf(raw.key.node, "", "%s", err)
		}
	}
	if !out.broken {
		c.lintKey(raw.key, out.origins)
	}
	if raw.window.v > 0 && raw.window.v < 2*of.timeout {
		by := ""
		if !of.written {
			by = ", by default"
		}
		c.p.warnf(raw.window.node, "write auto, or at least "+short(min(2*of.timeout, maxDuration)),
			"the window of %s is under twice the timeout of %s (%s%s): a request that is redelivered late may run again",
			short(raw.window.v), of.name, short(of.timeout), by)
	}
	return out
}

// concurrency checks a group and freezes it; nil where there is none.
func (c *checker) concurrency(in val[rawConcurrency], names *scope) *Concurrency {
	if !in.given() {
		return nil
	}
	raw := in.v
	out := &Concurrency{Group: raw.group.v, Limit: raw.limit.or(1), OnFull: raw.onFull.or(OnFullQueue)}
	if !raw.group.given() {
		return out
	}
	refs, errs := c.expr.String(raw.group.v, names)
	c.reportExpr(raw.group.node, errs)
	c.noteReads(refs)
	if !expr.Has(raw.group.v) {
		if err := CheckGroup(raw.group.v); err != nil {
			c.p.errorf(raw.group.node, "", "%s", err)
		}
	}
	if len(errs) == 0 {
		c.lintGroup(raw.group, c.origins(refs, []envLayer{c.pipelineLayer}))
	}
	return out
}

// namesOf are the names of a group among what is read, sorted.
func namesOf[R interface {
	Of(group string) (name string, ok bool)
}](group string, refs []R) []string {
	var out []string
	for _, r := range refs {
		if name, ok := r.Of(group); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
