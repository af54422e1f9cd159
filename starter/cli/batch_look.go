package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/run"
	"belay.run/internal/tree"
)

func batchStatusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status ID",
		Short: "Show how a batch stands, or how it ended",
		Args:  args(cobra.ExactArgs(1)),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return a.onBatch(cmd.Context(), argv[0], func(_ context.Context, _ *Connection, d *batch.Document) error {
			if *output == formatJSON {
				return writeJSON(a.Out, d)
			}
			_, err := io.WriteString(a.Out, d.ID+" "+batchSummary(d, time.Now()))
			return err
		})
	}
	return cmd
}

func batchResultsCommand(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "results ID",
		Short: "Write the results of a batch that has ended, in the order of its file",
		Args:  args(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this `file` (default standard output)")
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return a.onBatch(cmd.Context(), argv[0], func(ctx context.Context, conn *Connection, d *batch.Document) error {
			if err := hasEnded(d); err != nil {
				return err
			}
			st, err := conn.Store(ctx)
			if err != nil {
				return err
			}
			if out != "" {
				err = writeResults(ctx, st, d, out)
			} else {
				w := bufio.NewWriter(a.Out)
				err = errors.Join(batch.WriteResults(ctx, st, d, w), w.Flush())
			}
			if errors.Is(err, batch.ErrGone) {
				return &ExitError{Code: ExitFailed, Err: err, Hint: "they were removed, or BELAY_STORE is not what it is for the workers"}
			}
			return err
		})
	}
	return cmd
}

func batchRemoveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Take the tasks and results of a batch that has ended out of the store",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.onBatch(cmd.Context(), argv[0], func(ctx context.Context, conn *Connection, d *batch.Document) error {
				if err := hasEnded(d); err != nil {
					return err
				}
				st, err := conn.Store(ctx)
				if err != nil {
					return err
				}
				return batch.Remove(ctx, st, d.Folder)
			})
		},
	}
}

// hasEnded is an error for a batch that goes on.
func hasEnded(d *batch.Document) error {
	if d.Status.Terminal() {
		return nil
	}
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf("batch %s has not ended: %s", d.ID, tree.StatusWords(d.Status))}
}

func batchCancelCommand(a *app) *cobra.Command {
	var wait bool
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Ask a batch to cancel",
		Long: "Asks a batch to cancel and returns once the request is recorded. With --wait it\n" +
			"returns when the batch has ended, and shows what was done and what was not.",
		Args: args(cobra.ExactArgs(1)),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the batch has ended")
	cmd.Flags().StringVar(&reason, "reason", "", "why; the batch keeps it as its cause")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return a.onBatch(cmd.Context(), argv[0], func(ctx context.Context, conn *Connection, d *batch.Document) error {
			return a.cancelBatch(ctx, conn, d, &batchCancel{wait: wait, reason: reason, json: *output == formatJSON})
		})
	}
	return cmd
}

// batchCancel is how a batch is to be cancelled.
type batchCancel struct {
	wait   bool
	reason string
	json   bool
}

func (a *app) cancelBatch(ctx context.Context, conn *Connection, d *batch.Document, how *batchCancel) error {
	if d.Status.Terminal() && d.Status != run.Cancelled {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("batch %s has already ended: %s", d.ID, tree.StatusWords(d.Status))}
	}
	said := "is already cancelled"
	if d.Status != run.Cancelled {
		if err := conn.batches().Cancel(ctx, d.ID, whoami(), how.reason); err != nil {
			return err
		}
		said, d.Status = "was asked to cancel", run.Cancelling
	}
	if how.wait && !d.Status.Terminal() {
		var err error
		if d, err = conn.batches().Await(ctx, d.ID); err != nil {
			return err
		}
	}
	if how.json {
		return writeJSON(a.Out, d)
	}
	text := fmt.Sprintf("batch %s %s\n", d.ID, said)
	if d.Status.Terminal() {
		text = d.ID + " " + batchSummary(d, time.Now())
	}
	_, err := io.WriteString(a.Out, text)
	return err
}

// onBatch does something with a batch by its id.
func (a *app) onBatch(ctx context.Context, arg string, do func(context.Context, *Connection, *batch.Document) error) error {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	conn, disconnect, err := a.connect(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer disconnect()
	d, err := conn.batches().Read(ctx, batchID(arg))
	if err != nil {
		return interrupted(ctx, err)
	}
	if st, err := conn.Store(ctx); err == nil {
		// Without the store the counts of one that was terminated stay unknown.
		if err := control.Recount(ctx, st, d); err != nil {
			d.Notes = append(d.Notes, err.Error())
		}
	}
	return interrupted(ctx, do(ctx, conn, d))
}
