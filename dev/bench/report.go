package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// Report is the document of a benchmark.
type Report struct {
	Bench   string   `json:"bench"`
	Machine string   `json:"machine"`
	Rounds  int      `json:"rounds"`
	Figures []Figure `json:"figures"`
	// Loads are what came of each load, where there are such.
	Loads []Load `json:"loads,omitempty"`
}

func (r *Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *Report) writeTable(w io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: median of %d rounds, each beside its peer, on %s\n\n", r.Bench, r.Rounds, r.Machine)
	err := r.drawLoads(&text)
	if err := errors.Join(err, r.drawFigures(&text)); err != nil {
		return fmt.Errorf("drawing the tables: %w", err)
	}
	if _, err := text.WriteTo(w); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (r *Report) drawFigures(text io.Writer) error {
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	var rows bytes.Buffer
	rows.WriteString("FIGURE\tVALUE\tMIN … MAX\tPEER\tRATIO\tPEER IS\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&rows, "%s\t%s %s\t%s … %s\t%s %s\t%.2f\t%s%s\n",
			f.Name, number(f.Value), f.Unit, number(f.Min), number(f.Max), number(f.PeerValue), f.Unit, f.Ratio, f.Peer, f.Goal)
	}
	_, err := rows.WriteTo(table)
	return errors.Join(err, table.Flush())
}

// String is a goal after what it is of; nothing where there is none.
func (g *Goal) String() string {
	switch {
	case g == nil:
		return ""
	case g.Met:
		return "; wanted " + g.Want + ": yes"
	case g.Bound != "":
		return "; wanted " + g.Want + ": NO, bound by " + g.Bound
	}
	return "; wanted " + g.Want + ": NO"
}

func (r *Report) drawLoads(text io.Writer) error {
	if len(r.Loads) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	var rows bytes.Buffer
	rows.WriteString("LOAD\tBY\tQPS\tP50 / P99 / P99.9 ms\tTASKS\tERRORS\tSYSTEM CPU\tCPU A TASK, OF OTHERS\tCPUS ALLOW\tMEMORY\tBOUND BY\n")
	for _, l := range r.Loads {
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%.0f / %.0f / %.0f\t%d\t%d\t%.0f %%\t%.0f + %.0f µs\t%s/s\t%.0f MB\t%s\n",
			l.Load, l.Name, number(l.QPS), l.P50, l.P99, l.P999, l.Tasks, l.Errors, l.System, l.Cost, l.Others, number(l.Allow), l.Memory, l.Bound)
	}
	rows.WriteString("\n")
	_, err := rows.WriteTo(table)
	return errors.Join(err, table.Flush())
}

// number is v with about three digits that mean something.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// machine describes what the figures were taken on.
func machine() string {
	return fmt.Sprintf("%d × %s, %s/%s, %s", runtime.NumCPU(), cpu("/proc/cpuinfo"), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

func cpu(cpuinfo string) string {
	text, err := os.ReadFile(cpuinfo)
	if err != nil {
		return "CPU"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "CPU"
}
