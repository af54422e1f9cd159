package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"belay.run/internal/audit"
	"belay.run/internal/tree"
)

const (
	// auditLimit is how many entries are shown where nobody says how many.
	auditLimit = 50
	// maxAuditLimit bounds one document; JSON Lines have no bound.
	maxAuditLimit = 10_000
)

// auditFormat is -o of the audit, which has a format more than elsewhere.
type auditFormat string

const (
	auditText  auditFormat = "text"
	auditJSON  auditFormat = "json"
	auditLines auditFormat = "jsonl"
)

var _ pflag.Value = (*auditFormat)(nil)

// String is the flag's text.
func (f *auditFormat) String() string { return string(*f) }

// Type is shown in the help.
func (f *auditFormat) Type() string { return "text|json|jsonl" }

// Set accepts the three formats only.
func (f *auditFormat) Set(s string) error {
	switch auditFormat(s) {
	case auditText, auditJSON, auditLines:
		*f = auditFormat(s)
		return nil
	}
	return fmt.Errorf("%q is not an output format: text, json or jsonl", s)
}

// auditDoc is what audit prints under -o json.
type auditDoc struct {
	Entries []audit.Entry `json:"entries"`
}

type auditFlags struct {
	audit.Filter

	since, until    string
	cause, decision string
	output          auditFormat
}

func dedupAuditCommand(a *app) *cobra.Command {
	f := &auditFlags{output: auditText}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show which requests were blocked, by whom, of which run, and why",
		Long: "Shows what was decided about duplicates, the newest first: those that were blocked,\n" +
			"and those that ran because somebody meant it.\n\n" +
			"-o jsonl is for export: one entry a line, the oldest first, all there are.",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "only entries of the last `duration` (90m, 24h, 7d), or since a time (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "only entries before a `time`, in the same forms")
	flags.StringVar(&f.Key, "key", "", "only entries of this `key`")
	flags.StringVar(&f.cause, "cause", "", "only entries of this root `cause`: "+strings.Join(names(audit.Causes()), ", "))
	flags.StringVar(&f.decision, "decision", "", "only entries of this `decision`: "+strings.Join(names(audit.Decisions()), ", "))
	flags.StringVar(&f.Tenant, "tenant", "", "only entries of this `tenant`")
	flags.StringVar(&f.Project, "project", "", "only entries of this `project`")
	flags.StringVar(&f.Pipeline, "pipeline", "", "only entries of the pipeline of this `name`")
	flags.IntVar(&f.Limit, "limit", auditLimit, "at most this many; under -o jsonl all, unless it is given")
	flags.VarP(&f.output, "output", "o", "text for people, json for programs, jsonl for export")
	// The only error is an unknown flag name.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(time.Now(), flags.Changed("limit")); err != nil {
			return err
		}
		return a.withRedis(cmd.Context(), needsClaims, func(ctx context.Context, rdb redis.UniversalClient) error {
			return a.showAudit(ctx, audit.New(rdb, audit.Options{}), f)
		})
	}
	return cmd
}

// check reads what the flags say.
func (f *auditFlags) check(now time.Time, limited bool) error {
	var err error
	if f.Since, err = parseAgo("--since", f.since, now); err != nil {
		return err
	}
	if f.Until, err = parseAgo("--until", f.until, now); err != nil {
		return err
	}
	f.RootCause, f.Decision = audit.Cause(f.cause), audit.Decision(f.decision)
	switch {
	case !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until):
		return usage("--since %s is not before --until %s", f.since, f.until)
	case f.cause != "" && !slices.Contains(audit.Causes(), f.RootCause):
		return usage("--cause %q: want one of %s", f.cause, strings.Join(names(audit.Causes()), ", "))
	case f.decision != "" && !slices.Contains(audit.Decisions(), f.Decision):
		return usage("--decision %q: want one of %s", f.decision, strings.Join(names(audit.Decisions()), ", "))
	case f.output == auditLines && !limited:
		f.Limit = 0
	case f.Limit < 1 || f.Limit > maxAuditLimit && f.output != auditLines:
		return usage("--limit %d: want 1 to %d; -o jsonl has no limit", f.Limit, maxAuditLimit)
	}
	return nil
}

func names[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func (a *app) showAudit(ctx context.Context, l *audit.Log, f *auditFlags) error {
	if f.output == auditLines {
		_, err := l.Export(ctx, a.Out, f.Filter)
		return err
	}
	doc := auditDoc{Entries: []audit.Entry{}}
	for e, err := range l.Read(ctx, f.Filter) {
		if err != nil {
			return err
		}
		doc.Entries = append(doc.Entries, e)
	}
	if f.output == auditJSON {
		return writeJSON(a.Out, doc)
	}
	if len(doc.Entries) == 0 {
		_, err := fmt.Fprintln(a.Err, "no entries")
		return err
	}
	return writeEntries(a.Out, doc.Entries)
}

// writeEntries prints entries as a table.
func writeEntries(w io.Writer, entries []audit.Entry) error {
	rows := [][]string{{"TIME", "DECISION", "CAUSE", "PIPELINE", "KEY", "BY", "OF"}}
	for i := range entries {
		e := &entries[i]
		of := e.Ref()
		if e.Node != "" {
			of = strings.TrimSpace(of + " (" + e.Node + ")")
		}
		rows = append(rows, []string{
			e.At.Local().Format(time.DateTime), string(e.Decision), orDash(string(e.RootCause)),
			orDash(tree.Clean(e.Pipeline)), orDash(tree.Clean(e.Key)), orDash(tree.Clean(e.By)), orDash(tree.Clean(of)),
		})
	}
	if _, err := io.WriteString(w, strings.Join(tree.Table(rows), "\n")+"\n"); err != nil {
		return fmt.Errorf("writing the audit: %w", err)
	}
	return nil
}

// orDash keeps the cells of a table from being empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
