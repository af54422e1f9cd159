// Package belay_test checks the repository itself: what its documents say and
// point to, and what must agree between its files.
package belay_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/spec"
	"belay.run/internal/testkit/need"
)

// files returns the paths of the repository's files with one of the endings.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || path == "bin"):
			return filepath.SkipDir
		}
		for _, ending := range endings {
			if !d.IsDir() && strings.HasSuffix(path, ending) {
				found = append(found, path)
			}
		}
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, path := range files(t, ".md") {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
				_, err := os.Stat(file)
				require.NoErrorf(t, err, "%s links to %s", path, m[1])
			}
			if anchor != "" {
				require.Containsf(t, headings(read(t, file)), anchor, "%s links to %s", path, m[1])
			}
		}
	}
}

// TestReadmeInChinese holds the translation to what it translates: the same
// commands, files, links, and reports of others.
func TestReadmeInChinese(t *testing.T) {
	t.Parallel()
	facts := regexp.MustCompile("(?s)```[a-z]+\n.*?```|\\]\\([^)\\s]+\\)|[a-z-]+/[a-z-]+#[0-9]+")
	comments := regexp.MustCompile(` *# .*`)
	of := func(path, other string) []string {
		text := strings.Replace(read(t, path), "]("+other+")", "", 1)
		all := facts.FindAllString(text, -1)
		for i := range all {
			all[i] = comments.ReplaceAllString(all[i], "")
		}
		require.Greater(t, len(all), 20)
		slices.Sort(all)
		return all
	}
	require.Equal(t, of("README.md", "README.zh.md"), of("README.zh.md", "README.md"))
}

func TestIndexOfDocuments(t *testing.T) {
	t.Parallel()
	for _, index := range []string{"docs", "docs/adr"} {
		pages, err := filepath.Glob(index + "/*.md")
		require.NoError(t, err)
		text := read(t, index+"/README.md")
		for _, page := range pages {
			if name := filepath.Base(page); name != "README.md" {
				require.Containsf(t, text, "]("+name+")", "%s/README.md lists %s", index, name)
			}
		}
	}
}

// headings are the anchors of a document.
func headings(text string) []string {
	drop := regexp.MustCompile("[^a-z0-9 _-]")
	var anchors []string
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line {
			title = drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors = append(anchors, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return anchors
}

func TestPipelinesInDocuments(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	seen := 0
	for _, path := range files(t, ".md") {
		for _, m := range block.FindAllStringSubmatch(read(t, path), -1) {
			if strings.HasPrefix(m[1], "version: 1\n") {
				seen++
				_, report := spec.Parse(path, []byte(m[1]))
				require.NoErrorf(t, report.Err(), "a pipeline in %s", path)
			}
		}
	}
	require.Positive(t, seen)
}

func TestLimitsInDocuments(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile("(?s)```yaml\n(concurrency:.*?)```").FindStringSubmatch(read(t, "docs/light.md"))
	require.NotNil(t, m)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(path, []byte(m[1]), 0o600))
	limits, err := executor.LoadLimits(path)
	require.NoError(t, err)
	require.Equal(t, 20, limits.Targets["api.example.com:443"].InFlight)
}

func TestExamples(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, path := range examples {
		_, report := spec.Parse(path, []byte(read(t, path)))
		require.NoError(t, report.Err(), path)
		require.Empty(t, report.Warnings, path)
	}
	// The README shows the first of them, and CI runs all.
	readme := read(t, "README.md")
	require.Contains(t, readme, "go run ./dev run examples/release.yaml")
	require.Contains(t, readme, "go test ./... ./dev/...")
}

func TestSkipsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	skips, err := need.Skips(".ci/skips")
	require.NoError(t, err)
	var code strings.Builder
	for _, path := range files(t, "_test.go") {
		code.WriteString(read(t, path))
	}
	for name := range skips {
		function, _, _ := strings.Cut(name, "/")
		require.Containsf(t, code.String(), "func "+function+"(", ".ci/skips lists %s", name)
	}
}

func TestBothModulesPinTheSameTemporal(t *testing.T) {
	t.Parallel()
	pin := func(file, module string) string {
		m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(read(t, file))
		require.NotNilf(t, m, "%s in %s", module, file)
		return m[1]
	}
	for _, module := range []string{"go.temporal.io/sdk", "go.temporal.io/api"} {
		require.Equal(t, pin("go.mod", module), pin("dev/go.mod", module))
	}
	require.NotContains(t, read(t, "go.mod"), "go.temporal.io/server ")
}

func TestNothingOfOneMachine(t *testing.T) {
	t.Parallel()
	private := regexp.MustCompile(`(^|[\s"'=:(])/(work|root)/`)
	for _, path := range files(t, ".go", ".md", ".yaml", ".yml", ".sh", "Makefile", "Dockerfile", ".ci/run", ".ci/lib", ".ci/image") {
		if path == "repo_test.go" {
			continue
		}
		n := 0
		for line := range strings.Lines(read(t, path)) {
			n++
			require.Falsef(t, private.MatchString(line), "%s:%d: a path of one machine: %s", path, n, strings.TrimSpace(line))
		}
	}
}
