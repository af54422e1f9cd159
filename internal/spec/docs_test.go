package spec

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var blockRE = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestDocs reads every YAML example of the documentation. One that is a list is
// the steps of a stage.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../../docs/pipeline-file.md", "../../docs/expressions.md", "../../docs/once.md", "../../docs/containers.md"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		blocks := blockRE.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks)
		for _, b := range blocks {
			example := b[1]
			if strings.HasPrefix(example, "- ") {
				example = "name: p\nstages:\n  - name: a\n    steps:\n" + regexp.MustCompile(`(?m)^`).ReplaceAllString(strings.TrimSpace(example), "      ")
			}
			_, report := Parse(name, []byte(example))
			require.Empty(t, report.Errors, example)
			require.Empty(t, report.Warnings, example)
		}
	}
}

// TestDocsNameEveryKey holds that no key is left out of the documentation.
func TestDocsNameEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/pipeline-file.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			rows = append(rows, line)
		}
	}
	table := strings.Join(rows, "\n")
	for _, keys := range []string{
		fileObject().some(), inputObject().some(), sourceObject().some(), stageObject().some(), stepObject().some(),
		retryObject().some(), onFailureObject().some(), limitsObject().some(), commandObject().some(),
		pipelineDedupObject().some(), stepDedupObject().some(), concurrencyObject().some(), notifyObject().some(), someOfResources(),
		containerObject().some(), loginObject().some(), mountObject().some(), serviceObject().some(), healthObject().some(),
		serviceLimitsObject().some(),
	} {
		for name := range strings.SplitSeq(keys, ", ") {
			require.Contains(t, table, "`"+name+"`")
		}
	}
}

// someOfResources are the keys of all kinds of resources.
func someOfResources() string {
	var all []string
	for _, k := range slices.Concat(resourceKinds(), stageResourceKinds()) {
		if k.object != nil {
			all = append(all, k.object.some())
		}
	}
	return strings.Join(all, ", ")
}
