package need

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lacks skips the test, or fails it under CI=true where .ci/skips does not
// excuse it.
func lacks(tb testing.TB, what, remedy string) {
	tb.Helper()
	if os.Getenv("CI") != "true" {
		tb.Skipf("needs %s: %s", what, remedy)
		return
	}
	file, err := skipsFile()
	if err != nil {
		tb.Fatalf("needs %s: %s (and %v)", what, remedy, err)
		return
	}
	skips, err := Skips(file)
	if err != nil {
		tb.Fatalf("needs %s: %s (and %v)", what, remedy, err)
		return
	}
	reason, listed := skips[tb.Name()]
	if !listed {
		tb.Fatalf("needs %s, and .ci/skips does not list %s: %s", what, tb.Name(), remedy)
		return
	}
	tb.Skipf("needs %s: %s", what, reason)
}

// Skips reads a list of tests that may skip in CI: the name of each and why.
func Skips(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the list of skips: %w", err)
	}
	skips := make(map[string]string)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		name, reason := fields[0], strings.Join(fields[1:], " ")
		if reason == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason", file, n, name)
		}
		if _, twice := skips[name]; twice {
			return nil, fmt.Errorf("%s:%d: %s is listed twice", file, n, name)
		}
		skips[name] = reason
	}
	return skips, nil
}

// skipsFile finds .ci/skips in the directory of the test or one above it.
func skipsFile() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding .ci/skips: %w", err)
	}
	for {
		file := filepath.Join(dir, ".ci", "skips")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("finding .ci/skips: none in or above the directory of the test")
		}
		dir = up
	}
}
