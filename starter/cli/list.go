package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

// maxLimit bounds --limit.
const maxLimit = 1000

// listDoc is what list prints under -o json.
type listDoc struct {
	Runs []run.Document `json:"runs"`
}

func listCommand(a *app) *cobra.Command {
	var f runs.Filter
	var status, since string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, the newest first",
		Args:  noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&status, "status", "", "only runs in this `state`: running, succeeded, failed, timed_out, cancelled, …")
	flags.StringVar(&f.Pipeline, "pipeline", "", "only runs of the pipeline of this `name`")
	flags.StringVar(&f.Tenant, "tenant", "", "only runs of this `tenant`")
	flags.StringVar(&f.Project, "project", "", "only runs of this `project`")
	flags.StringVar(&since, "since", "", "only runs that started in the last `duration` (90m, 24h, 7d), or since a time (RFC 3339)")
	flags.IntVar(&f.Limit, "limit", 20, "at most this many")
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = parseSince(since, time.Now()); err != nil {
			return err
		}
		if f.Status, err = parseStatus(status); err != nil {
			return err
		}
		if f.Limit < 1 || f.Limit > maxLimit {
			return usage("--limit %d: want 1 to %d", f.Limit, maxLimit)
		}
		return a.connected(cmd.Context(), func(ctx context.Context, conn *Connection) error {
			return a.list(ctx, conn, f, *out)
		})
	}
	return cmd
}

func (a *app) list(ctx context.Context, conn *Connection, f runs.Filter, out format) error {
	docs, err := conn.runs().List(ctx, f)
	if err != nil {
		return err
	}
	if out == formatJSON {
		return writeJSON(a.Out, listDoc{Runs: docs})
	}
	if len(docs) == 0 {
		_, err := fmt.Fprintln(a.Err, "no runs")
		return err
	}
	return writeRuns(a.Out, docs, styleOf(a.Out))
}

// writeRuns prints runs as a table. Its columns are as wide as they need.
func writeRuns(w io.Writer, docs []run.Document, st tree.Style) error {
	rows := [][]string{{"STATUS", "PIPELINE", "STARTED", "TOOK", "RUN"}}
	for i := range docs {
		d := &docs[i]
		took := time.Since(*d.StartedAt)
		if d.EndedAt != nil {
			took = d.EndedAt.Sub(*d.StartedAt)
		}
		rows = append(rows, []string{
			tree.StatusWords(d.Status), tree.Clean(d.Pipeline), d.StartedAt.Local().Format(time.DateTime),
			tree.Duration(took), tree.Clean(d.ID),
		})
	}
	var b strings.Builder
	for i, line := range tree.Table(rows) {
		if i > 0 {
			line = st.PaintStatus(docs[i-1].Status, line)
		}
		b.WriteString(line + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the list: %w", err)
	}
	return nil
}

// parseSince reads --since.
func parseSince(s string, now time.Time) (time.Time, error) {
	return parseAgo("--since", s, now)
}

// parseAgo reads a time, or how long ago it was. Days are counted too.
func parseAgo(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := time.ParseDuration(days + "h"); err == nil && n >= 0 {
			return now.Add(-24 * n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usage("%s %q: want a duration such as 90m, 24h or 7d, or a time such as 2026-01-31T15:00:00Z", flag, s)
}

// parseStatus reads a state, in either spelling of the two words that have two.
func parseStatus(s string) (run.Status, error) {
	if s == "" {
		return "", nil
	}
	status := run.Status(strings.ReplaceAll(strings.ToLower(s), "-", "_"))
	if status == "canceled" {
		status = run.Cancelled
	}
	if !slices.Contains(run.Statuses(), status) {
		names := make([]string, 0, len(run.Statuses()))
		for _, known := range run.Statuses() {
			names = append(names, string(known))
		}
		return "", usage("--status %q: want one of %s", s, strings.Join(names, ", "))
	}
	return status, nil
}
