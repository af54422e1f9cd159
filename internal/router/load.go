package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/spec"
)

// maxFile bounds a file of rules.
const maxFile = 1 << 20

// file is a file of rules as it is written.
type file struct {
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Name       string            `yaml:"name"`
	Uses       []string          `yaml:"uses"`
	Steps      []string          `yaml:"steps"`
	Labels     map[string]string `yaml:"labels"`
	LongerThan string            `yaml:"longer_than"`
	LargerThan string            `yaml:"larger_than"`
	To         string            `yaml:"to"`
}

// Load reads the rules of a file in YAML; without a path the router has the
// defaults. All that is wrong is in the error.
func Load(path string) (*Router, error) {
	if path == "" {
		return New(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the rules of the router: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading the rules of the router: %w", err)
	}
	r, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func parse(text []byte) (*Router, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	var f file
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(new(file)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	var rules []Rule
	var errs []error
	names := map[string]bool{}
	for i := range f.Rules {
		r, err := f.Rules[i].check()
		if names[r.Name] && r.Name != "" {
			err = errors.Join(err, fmt.Errorf("name: another rule is called %s", r.Name))
		}
		names[r.Name] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("rule %d (%s): %w", i+1, r.Name, err))
		}
		rules = append(rules, r)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return New(rules...), nil
}

// check turns a rule as written into one to go by.
func (in *rule) check() (Rule, error) {
	out := Rule{Name: in.Name, Uses: in.Uses, Steps: in.Steps, Labels: in.Labels, To: spec.Destination(in.To)}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if in.Name == "" {
		wrong("name: it has none")
	}
	if out.To != spec.ToLight && out.To != spec.ToHost {
		wrong("to: found %q, expected %s or %s", in.To, spec.ToLight, spec.ToHost)
	}
	known := spec.Types()
	for _, u := range in.Uses {
		if slices.Contains(known, u) {
			continue
		}
		if near := expr.Nearest(u, known); near != "" {
			wrong("uses: unknown type %q, did you mean %s?", u, near)
		} else {
			wrong("uses: unknown type %q", u)
		}
	}
	for _, pattern := range in.Steps {
		if _, err := path.Match(pattern, ""); err != nil {
			wrong("steps: %q is no pattern", pattern)
		}
	}
	if in.LongerThan != "" {
		d, err := time.ParseDuration(in.LongerThan)
		if err != nil || d <= 0 {
			wrong("longer_than: found %q, expected a duration such as 5s", in.LongerThan)
		}
		out.LongerThan = d
	}
	if in.LargerThan != "" {
		n, ok := spec.ParseSize(in.LargerThan)
		if !ok || n <= 0 {
			wrong("larger_than: found %q, expected a size such as 1MiB", in.LargerThan)
		}
		out.LargerThan = n
	}
	return out, errors.Join(errs...)
}
