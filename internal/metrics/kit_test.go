package metrics_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"belay.run/internal/executor"
	"belay.run/internal/metrics"
	"belay.run/internal/task"
)

// family is a metric as it is served.
type family struct {
	kind, help string
	labels     map[string]bool
}

// everything serves each metric that there is, those of Temporal's SDK as
// docs/metrics.md lists them.
func everything(t *testing.T) map[string]family {
	t.Helper()
	m := metrics.New()
	m.Light().Ended(&task.Result{Type: "http", Status: task.Succeeded})
	m.WatchExecutor(func() executor.Status { return executor.Status{} })
	m.WatchHost(func() metrics.Host { return metrics.Host{Answering: []string{"Temporal"}} })
	m.WatchTier(func() bool { return true })
	m.SetDisk("state", 1, 2)
	h := temporal(t, m)
	for _, row := range regexp.MustCompile("(?m)^\\| `(temporal_\\w+)` \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		tell(h, row[1], row[2], row[3])
	}
	return families(scrape(t, m))
}

// tell has the SDK measure something.
func tell(h client.MetricsHandler, name, kind, labels string) {
	tags := map[string]string{}
	for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(labels, -1) {
		tags[label[1]] = "x"
	}
	for _, label := range []string{"namespace", "client_name", "worker_type", "workflow_type", "activity_type", "task_queue"} {
		tags[label] = "x"
	}
	h = h.WithTags(tags)
	switch kind {
	case "counter":
		h.Counter(strings.TrimSuffix(name, "_total")).Inc(1)
	case "histogram":
		h.Timer(strings.TrimSuffix(name, "_seconds")).Record(time.Second)
	case "gauge":
		h.Gauge(name).Update(1)
	}
}

// families reads a scrape.
func families(text string) map[string]family {
	all := map[string]family{}
	sample := regexp.MustCompile(`^([a-zA-Z0-9_]+)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-z_]+)="`)
	name, help := "", ""
	for line := range strings.Lines(text) {
		switch words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4); {
		case strings.HasPrefix(line, "# HELP"):
			help = words[3]
		case strings.HasPrefix(line, "# TYPE"):
			name = words[2]
			all[name] = family{kind: words[3], help: help, labels: map[string]bool{}}
			help = ""
		default:
			for _, l := range label.FindAllStringSubmatch(sample.FindStringSubmatch(line)[2], -1) {
				all[name].labels[l[1]] = true
			}
		}
	}
	return all
}

// series are the names under which expressions ask for a metric, each with the
// labels that it has there.
func series(all map[string]family) map[string]map[string]bool {
	out := map[string]map[string]bool{"up": {"job": true, "instance": true}}
	for name, f := range all {
		labels := maps.Clone(f.labels)
		labels["instance"], labels["job"] = true, true // Prometheus adds them
		if f.kind != "histogram" {
			out[name] = labels
			continue
		}
		out[name+"_bucket"] = labels
		without := maps.Clone(labels)
		delete(without, "le")
		out[name+"_sum"], out[name+"_count"] = without, without
	}
	return out
}

// asked checks that there is each metric of an expression, with each label that
// it, and the legend, ask for. It returns the metrics.
func asked(t *testing.T, there map[string]map[string]bool, expr, legend string) []string {
	t.Helper()
	names := regexp.MustCompile(`\b(?:(?:belay|temporal|go|process)_[a-z_]+|up\b)`).FindAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`), -1)
	require.NotEmpty(t, names, expr)
	for _, name := range names {
		require.Contains(t, there, name, expr)
	}
	by := regexp.MustCompile(`\bby \(([^)]*)\)|\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)
	for _, m := range by.FindAllStringSubmatch(expr+" "+legend, -1) {
		for l := range strings.SplitSeq(m[1]+m[2], ", ") {
			has := func(name string) bool { return there[name][l] }
			require.True(t, slices.ContainsFunc(names, has), "%s: none has the label %s", expr, l)
		}
	}
	for _, m := range regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`).FindAllStringSubmatch(expr, -1) {
		for _, l := range regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`).FindAllStringSubmatch(m[2], -1) {
			require.Contains(t, there[m[1]], l[1], "%s is asked for a label", m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// read reads a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	require.NoError(t, err)
	return string(text)
}
