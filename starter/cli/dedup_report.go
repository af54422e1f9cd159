package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"belay.run/internal/audit"
	"belay.run/internal/tree"
)

// showReport prints what was decided by the month; without a begin it is of this
// month and the one before.
func (a *app) showReport(ctx context.Context, l *audit.Log, f audit.StatsFilter, out format) error {
	now := time.Now()
	if f.Since.IsZero() {
		y, m, _ := now.UTC().Date()
		f.Since = time.Date(y, m-1, 1, 0, 0, 0, 0, time.UTC)
	}
	report, err := l.Report(ctx, f, now)
	if err != nil {
		return err
	}
	if out == formatJSON {
		return writeJSON(a.Out, report)
	}
	return writeReport(a.Out, report)
}

// writeReport prints a table a month.
func writeReport(w io.Writer, r *audit.Report) error {
	var b strings.Builder
	for i, m := range r.Months {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(m.Month)
		if !m.Complete {
			b.WriteString(" (not a whole month)")
		}
		b.WriteString("\n")
		if len(m.Tenants) == 0 {
			b.WriteString("  nothing was claimed\n")
			continue
		}
		for _, line := range tree.Table(reportRows(m.Tenants)) {
			b.WriteString("  " + line + "\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func reportRows(tenants []audit.TenantReport) [][]string {
	head := []string{"TENANT", "RAN", "SAVED", "RATE"}
	for _, cause := range audit.Causes() {
		head = append(head, strings.ToUpper(string(cause)))
	}
	for _, d := range audit.Decisions() {
		head = append(head, strings.ToUpper(string(d)))
	}
	rows := [][]string{head}
	for _, t := range tenants {
		row := []string{tree.Clean(t.Tenant), digits(t.Ran), digits(t.Saved), fmt.Sprintf("%.1f%%", 100*t.SavedRate)}
		for _, cause := range audit.Causes() {
			row = append(row, digits(t.RootCauses[cause]))
		}
		for _, d := range audit.Decisions() {
			row = append(row, digits(t.Decisions[d]))
		}
		rows = append(rows, row)
	}
	return rows
}
