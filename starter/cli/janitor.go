package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay.run/activities"
	"belay.run/internal/tree"
)

// passPatience is how long a pass that was asked for waits for what it begins.
const passPatience = 3 * time.Minute

func janitorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "janitor",
		Short: "Release what runs left behind that could not do so themselves",
		Args:  cobra.ArbitraryArgs,
		RunE:  helpOrUnknown,
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(janitorRunCommand(a))
	return cmd
}

func janitorRunCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run one pass of the janitor now, and say what it did",
		Long: "Starts a pass of the janitor, which the workers otherwise run every 15 seconds,\n" +
			"waits for it and says what it released. What could not be released before is\n" +
			"tried again at once. Then it removes logs, archives, batches and entries of the\n" +
			"audit that are older than the workers' settings (retention_…) keep them.\n" +
			"Of runs that are open it touches nothing.",
		Args: noArgs,
	}
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.connected(cmd.Context(), func(ctx context.Context, conn *Connection) error {
			res, err := conn.runs().RunJanitor(ctx, activities.JanitorInput{Patience: passPatience, Eager: true, Retention: true})
			if err != nil {
				return err
			}
			if *out == formatJSON {
				err = writeJSON(a.Out, res)
			} else {
				err = writePass(a.Out, res)
			}
			if err != nil {
				return err
			}
			return passEnded(res)
		})
	}
	return cmd
}

// passEnded is the error of a pass that could not release all it found; what it
// left has been shown.
func passEnded(res *activities.JanitorResult) error {
	if res.Leaked > 0 {
		return &ExitError{Code: ExitFailed}
	}
	return nil
}

// writePass says what a pass did.
func writePass(w io.Writer, res *activities.JanitorResult) error {
	var b strings.Builder
	for i := range res.Runs {
		r := &res.Runs[i]
		fmt.Fprintf(&b, "%s\n", tree.Clean(place(r.ID, r.RunID)))
		for _, e := range r.Released {
			fmt.Fprintf(&b, "  released %s\n", resourceName(&e))
		}
		for _, e := range r.Leaked {
			fmt.Fprintf(&b, "  leaked %s: %s\n", resourceName(&e), tree.Clean(e.Error))
		}
		for _, note := range r.Notes {
			fmt.Fprintf(&b, "  %s\n", tree.Clean(note))
		}
	}
	if res.Left > 0 {
		fmt.Fprintf(&b, "and %d more\n", res.Left)
	}
	for _, id := range res.UnderWay {
		fmt.Fprintf(&b, "%s: under way, it goes on\n", tree.Clean(id))
	}
	for _, id := range res.Overdue {
		fmt.Fprintf(&b, "%s: overdue, it should have ended long ago\n", tree.Clean(id))
	}
	for _, note := range res.Notes {
		fmt.Fprintf(&b, "%s\n", tree.Clean(note))
	}
	fmt.Fprintf(&b, "%d released, %d leaked, %d runs under way\n", res.Released, res.Leaked, len(res.UnderWay))
	if res.More {
		b.WriteString("there are more; the next pass goes on\n")
	}
	if x := res.Expired; x != nil && x.Any() {
		fmt.Fprintf(&b, "removed by age: logs of runs: %d, archives: %d, batches: %d, entries of the audit: %d\n", x.Logs, x.Artifacts, x.Batches, x.Audit)
		if x.More {
			b.WriteString("there is more; the next sweep goes on\n")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing what the janitor did: %w", err)
	}
	return nil
}

func resourceName(e *activities.ReapedEntry) string {
	s := e.Kind + " " + e.Name
	if e.Node != "" {
		s += " of " + e.Node
	}
	if e.Host != "" {
		s += " on host " + e.Host
	}
	return tree.Clean(s)
}
