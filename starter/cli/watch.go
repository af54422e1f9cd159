package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"belay.run/starter/runs"
)

func watchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "Follow a run until it has ended, and end with its exit code",
		Long: "Follows a run as `run` does. Ctrl-C only ends the command. With -o json each\n" +
			"change is one line with the whole document of the run.",
		Args: args(cobra.ExactArgs(1)),
	}
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return a.onRun(cmd.Context(), argv[0], func(ctx context.Context, t *target) error {
			if *out == formatJSON {
				return t.watchJSON(ctx)
			}
			return t.watch(ctx)
		})
	}
	return cmd
}

func (t *target) watch(ctx context.Context) error {
	s := &started{app: t.app, conn: t.conn, runs: t.runs, begun: begun{ref: t.ref}}
	s.announce()
	f := &following{runs: t.runs, ref: t.ref, out: newDisplay(t.Out, t.attempts(ctx)), logs: t.conn.Logs}
	d, err := f.follow(ctx)
	if err != nil {
		return leftBy(err, d)
	}
	if err := s.conclude(d); err != nil {
		return err
	}
	return endedRun(d)
}

// attempts is how often each step is tried. Where the plan cannot be had, only
// that is missing.
func (t *target) attempts(ctx context.Context) map[string]int {
	plan, err := t.runs.Plan(ctx, t.ref)
	if err != nil {
		return nil
	}
	return maxAttempts(plan)
}

// watchJSON writes the run's document each time it has changed.
func (t *target) watchJSON(ctx context.Context) error {
	d, err := t.runs.Follow(ctx, t.ref, func(snap *runs.Snapshot) error {
		if snap.NoAnswer != "" {
			_, _ = fmt.Fprintln(t.Err, noAnswer(snap)) // progress only
		}
		return writeJSONLine(t.Out, snap.Document)
	})
	if err != nil {
		return err
	}
	return endedRun(d)
}
