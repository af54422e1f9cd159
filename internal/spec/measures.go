package spec

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

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

// FormatDuration is a duration as a pipeline file has it: 4h, 1h30m.
func FormatDuration(d time.Duration) string { return short(d) }

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

// size is a number of bytes, of at least low.
func size(low int64) kind[int64] {
	const high = maxSize
	return kind[int64]{
		read: func(p *parser, n *yaml.Node) (int64, bool) {
			if n.Kind != yaml.ScalarNode || !sizeRE.MatchString(n.Value) {
				p.errorf(n, "write it as 64KiB, 10MiB or 1GiB", "expected a size, found %s", found(n))
				return 0, false
			}
			bytes, ok := ParseSize(n.Value)
			if !ok || bytes < low || bytes > high {
				p.errorf(n, "", "expected a size from %d to %d bytes, found %s", low, high, n.Value)
				return 0, false
			}
			return bytes, true
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
