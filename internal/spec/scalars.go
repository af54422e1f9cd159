package spec

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/run"
)

// text is any text. A value that YAML reads as something else has to be quoted,
// so that nobody is surprised by what becomes of yes, 1.20 or 0644.
func text() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind != yaml.ScalarNode || !slices.Contains([]string{"!!str", "!!timestamp"}, n.ShortTag()) {
				p.errorf(n, quoteHint(n), "expected text, found %s", found(n))
				return "", false
			}
			return n.Value, p.noNUL(n)
		},
		schema: func(schemas) schema { return schema{"type": "string"} },
	}
}

// filled is text that is not empty.
func filled(what string) kind[string] {
	t := text()
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := t.read(p, n)
			if ok && strings.TrimSpace(s) == "" {
				p.errorf(n, "", "expected %s, found an empty text", what)
				return "", false
			}
			return s, ok
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": `\S`} },
	}
}

// literal is the text of a scalar as it is written in the file: 1.20 stays 1.20.
func literal() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			switch {
			case n.Kind != yaml.ScalarNode:
				p.errorf(n, "", "expected text, found %s", found(n))
				return "", false
			case n.ShortTag() == "!!null":
				p.errorf(n, `write "" for an empty text`, "expected text, found nothing")
				return "", false
			}
			return n.Value, p.noNUL(n)
		},
		schema: func(schemas) schema { return schema{"type": []string{"string", "number", "boolean"}} },
	}
}

func (p *parser) noNUL(n *yaml.Node) bool {
	if strings.ContainsRune(n.Value, 0) {
		p.errorf(n, "remove it", "a text may not hold the character NUL")
		return false
	}
	return true
}

func quoteHint(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return fmt.Sprintf("quote it: %q", clip(n.Value))
	}
	return ""
}

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

// word is one of a few words.
func word[S ~string](words ...S) kind[S] {
	return kind[S]{
		read: func(p *parser, n *yaml.Node) (S, bool) {
			list := make([]string, len(words))
			for i, w := range words {
				if list[i] = string(w); n.Kind == yaml.ScalarNode && n.Value == string(w) {
					return w, true
				}
			}
			hint := ""
			if near := expr.Nearest(n.Value, list); near != "" && n.Kind == yaml.ScalarNode {
				hint = "did you mean " + near + "?"
			}
			p.errorf(n, hint, "expected %s, found %s", joined(list, "or"), found(n))
			return "", false
		},
		schema: func(schemas) schema { return schema{"enum": words} },
	}
}

// boolean is true or false, and nothing that YAML 1.1 also took for it.
func boolean() kind[bool] {
	return kind[bool]{
		read: func(p *parser, n *yaml.Node) (bool, bool) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
				return strings.EqualFold(n.Value, "true"), true
			}
			hint := ""
			switch strings.ToLower(n.Value) {
			case "yes", "on", "y":
				hint = "write true"
			case "no", "off", "n":
				hint = "write false"
			}
			p.errorf(n, hint, "expected true or false, found %s", found(n))
			return false, false
		},
		schema: func(schemas) schema { return schema{"type": "boolean"} },
	}
}

// integer is a whole number in plain decimal form, from low to high.
func integer(low, high int) kind[int] {
	return kind[int]{
		read: func(p *parser, n *yaml.Node) (int, bool) {
			what := fmt.Sprintf("a whole number from %d to %d", low, high)
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
				p.errorf(n, "", "expected %s, found %s", what, found(n))
				return 0, false
			}
			i, err := decimal(n.Value)
			switch {
			case err != nil:
				p.errorf(n, "write it in decimal digits", "expected %s, found %s", what, clip(n.Value))
				return 0, false
			case i < low || i > high:
				p.errorf(n, "", "expected %s, found %s", what, clip(n.Value))
				return 0, false
			}
			return i, true
		},
		schema: func(schemas) schema { return schema{"type": "integer", "minimum": low, "maximum": high} },
	}
}

// decimal reads a whole number without a leading zero, a + or a _: 010 is eight
// to some readers of YAML and ten to others.
func decimal(s string) (int, error) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		return 0, fmt.Errorf("%s is no decimal number", clip(s))
	}
	i, err := strconv.Atoi(s)
	if err != nil {
		if s[0] == '-' {
			return math.MinInt, nil
		}
		return math.MaxInt, nil
	}
	return i, nil
}

// factor is a number from low to high.
func factor(low, high float64) kind[float64] {
	return kind[float64]{
		read: func(p *parser, n *yaml.Node) (float64, bool) {
			f, err := strconv.ParseFloat(n.Value, 64)
			if n.Kind != yaml.ScalarNode || err != nil || !(f >= low && f <= high) {
				p.errorf(n, "", "expected a number from %v to %v, found %s", low, high, found(n))
				return 0, false
			}
			return f, true
		},
		schema: func(schemas) schema { return schema{"type": "number", "minimum": low, "maximum": high} },
	}
}

// maxDuration bounds every duration in a file.
const maxDuration = 31 * 24 * time.Hour

// What durations and sizes look like: 90s, 1h30m, 1.5h, 500ms; 64KiB, 10MB, 1GiB.
const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`
	sizePattern     = `^[0-9]{1,12} ?(B|KB|MB|GB|KiB|MiB|GiB)$`
)

var (
	durationRE = regexp.MustCompile(durationPattern)
	sizeRE     = regexp.MustCompile(sizePattern)
	// nearlyRE is what people write for a duration.
	nearlyRE = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)$`)
)

// duration is a time span of at least low.
func duration(low time.Duration) kind[time.Duration] {
	return kind[time.Duration]{
		read: func(p *parser, n *yaml.Node) (time.Duration, bool) {
			if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
				p.errorf(n, "write it as 90s, 5m or 1h30m", "expected a duration, found %s", found(n))
				return 0, false
			}
			d, hint := parseDuration(n.Value)
			switch {
			case hint != "":
				p.errorf(n, hint, "expected a duration, found %s", found(n))
				return 0, false
			case d < low:
				p.errorf(n, "", "expected a duration of at least %s, found %s", low, n.Value)
				return 0, false
			case d > maxDuration:
				p.errorf(n, "", "expected a duration of at most %s, found %s", short(maxDuration), n.Value)
				return 0, false
			}
			return d, true
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": durationPattern} },
	}
}

// parseDuration reads a duration, or says what to write instead.
func parseDuration(s string) (d time.Duration, hint string) {
	const usual = "write it as 90s, 5m or 1h30m"
	if durationRE.MatchString(s) {
		d, err := time.ParseDuration(s)
		if err != nil {
			return maxDuration + 1, ""
		}
		return d, ""
	}
	m := nearlyRE.FindStringSubmatch(s)
	if m == nil {
		return 0, usual
	}
	unit := strings.ToLower(m[2])
	switch {
	case unit == "":
		return 0, "did you mean " + s + "s?"
	case unit == "d" || strings.HasPrefix(unit, "day"):
		if days, err := strconv.ParseFloat(m[1], 64); err == nil {
			return 0, fmt.Sprintf("did you mean %vh?", days*24)
		}
	case strings.HasPrefix(unit, "s"):
		return 0, "did you mean " + m[1] + "s?"
	case strings.HasPrefix(unit, "ms") || strings.HasPrefix(unit, "milli"):
		return 0, "did you mean " + m[1] + "ms?"
	case strings.HasPrefix(unit, "m"):
		return 0, "did you mean " + m[1] + "m?"
	case strings.HasPrefix(unit, "h"):
		return 0, "did you mean " + m[1] + "h?"
	}
	return 0, usual
}

// short is a duration without its zero parts: 6h rather than 6h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// size is a number of bytes, from low to high.
func size(low, high int64) kind[int64] {
	return kind[int64]{
		read: func(p *parser, n *yaml.Node) (int64, bool) {
			if n.Kind != yaml.ScalarNode || !sizeRE.MatchString(n.Value) {
				p.errorf(n, "write it as 64KiB, 10MiB or 1GiB", "expected a size, found %s", found(n))
				return 0, false
			}
			digits := strings.TrimRight(n.Value, " BKMGi")
			count, err := strconv.ParseInt(digits, 10, 64)
			unit := unitOf(strings.TrimSpace(n.Value[len(digits):]))
			if err != nil || count > high/unit || count*unit < low {
				p.errorf(n, "", "expected a size from %d to %d bytes, found %s", low, high, n.Value)
				return 0, false
			}
			return count * unit, true
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": sizePattern} },
	}
}

func unitOf(unit string) int64 {
	const k, ki = 1000, 1024
	switch unit {
	case "KB":
		return k
	case "MB":
		return k * k
	case "GB":
		return k * k * k
	case "KiB":
		return ki
	case "MiB":
		return ki * ki
	case "GiB":
		return ki * ki * ki
	}
	return 1
}
