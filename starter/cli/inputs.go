package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/spec"
)

// stdinName stands for standard input in place of a file, and is its name in
// errors.
const stdinName = "-"

// readFile reads a pipeline file. Of one over the limit it reads as much as
// shows that it is.
func (a *app) readFile(path string) ([]byte, error) {
	if path == stdinName {
		return readLimited(a.In, "standard input")
	}
	return readPath(path)
}

func readPath(path string) ([]byte, error) {
	// Before it is opened: that of a named pipe waits for somebody to write.
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, usage("%w", err)
	case info.IsDir():
		return nil, usage("%s is a directory: name a file", path)
	case !info.Mode().IsRegular() && !opened(path):
		return nil, usage("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	return readLimited(f, path)
}

// opened reports whether a path names what whoever called the command has
// opened for it, as shells do for <(…).
func opened(path string) bool {
	return path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/")
}

func readLimited(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, spec.MaxFile+1))
	if err != nil {
		return nil, usage("reading %s: %w", name, err)
	}
	return text, nil
}

// readInputs gathers the inputs of a run: those of the file, and over them
// those given as k=v.
func readInputs(file string, pairs []string) (map[string]string, error) {
	inputs := map[string]string{}
	if file != "" {
		if err := readInputsFile(file, inputs); err != nil {
			return nil, err
		}
	}
	given := map[string]bool{}
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		switch {
		case !ok || k == "":
			return nil, usage("-i %s: want name=value", pair)
		case given[k]:
			return nil, usage("input %s is given twice", k)
		}
		given[k], inputs[k] = true, v
	}
	return inputs, nil
}

// readInputsFile reads a map of names to texts, numbers or truth values. They
// are taken as they stand there, so that the tag 1.10 stays 1.10.
func readInputsFile(path string, into map[string]string) error {
	text, err := readPath(path)
	if err != nil {
		return err
	}
	if len(text) > spec.MaxFile {
		return usage("%s is larger than %d MiB", path, spec.MaxFile>>20)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return usage("%s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return usage("%s:%d:%d: want a map of inputs, as name: value", path, root.Line, root.Column)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		place := fmt.Sprintf("%s:%d:%d", path, k.Line, k.Column)
		if _, twice := into[k.Value]; twice {
			return usage("%s: input %s is given twice", place, k.Value)
		}
		if k.Kind != yaml.ScalarNode || v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
			return usage("%s: input %s: want a text, a number, true or false", place, k.Value)
		}
		into[k.Value] = v.Value
	}
	return nil
}
