package archive

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// pattern is a glob over paths with slashes, cut at them. A name of ** stands
// for any number of names, none too.
type pattern struct {
	text  string
	names []string
	// dirs says that it matches folders only.
	dirs bool
}

func compile(text string) (pattern, error) {
	p := pattern{text: text, dirs: strings.HasSuffix(text, "/")}
	clean := path.Clean(text)
	switch {
	case text == "":
		return p, fmt.Errorf("pattern %q: empty", text)
	case strings.HasPrefix(clean, "/"), clean == "..", strings.HasPrefix(clean, "../"):
		return p, fmt.Errorf("pattern %q: leads out of the folder; write it relative to the folder", text)
	}
	if clean != "." {
		p.names = strings.Split(clean, "/")
	}
	for _, name := range p.names {
		if _, err := path.Match(name, ""); err != nil {
			return p, fmt.Errorf("pattern %q: %w", text, err)
		}
	}
	return p, nil
}

// compileAll compiles patterns; those without a slash match at any depth where
// floating says so.
func compileAll(texts []string, floating bool) ([]pattern, error) {
	patterns := make([]pattern, len(texts))
	for i, text := range texts {
		p, err := compile(text)
		if err != nil {
			return nil, err
		}
		if floating && len(p.names) == 1 && !strings.HasPrefix(text, "./") {
			p.names = []string{"**", p.names[0]}
		}
		patterns[i] = p
	}
	return patterns, nil
}

// matches reports whether the pattern is for the path of names.
func (p pattern) matches(names []string, dir bool) bool {
	return (dir || !p.dirs) && match(p.names, names)
}

// mayMatchIn reports whether the pattern can match something in the folder.
func (p pattern) mayMatchIn(dir []string) bool {
	for i, name := range p.names {
		if i == len(dir) || name == "**" {
			return true
		}
		if !matchName(name, dir[i]) {
			return false
		}
	}
	return false
}

// match walks a pattern and a path together. After a ** it only ever goes back
// to the last one, so its time is bounded by the product of the lengths.
func match(pattern, names []string) bool {
	star, resume := -1, 0
	i, j := 0, 0
	for j < len(names) {
		switch {
		case i < len(pattern) && pattern[i] == "**":
			star, resume = i, j
			i++
		case i < len(pattern) && matchName(pattern[i], names[j]):
			i++
			j++
		case star >= 0:
			resume++
			i, j = star+1, resume
		default:
			return false
		}
	}
	return !slices.ContainsFunc(pattern[i:], func(name string) bool { return name != "**" })
}

func matchName(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // compile has found bad patterns
	return ok
}
