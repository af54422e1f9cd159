package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

// needsLedger is why the commands about what is held need Redis.
const needsLedger = "what runs hold is kept in Redis"

// resourcesDoc is what resources prints under -o json.
type resourcesDoc struct {
	Resources []runs.Held `json:"resources"`
}

func resourcesCommand(a *app) *cobra.Command {
	var leaked bool
	cmd := &cobra.Command{
		Use:   "resources RUN | resources --leaked",
		Short: "Show what a run holds and gave back, or what no run could give back",
		Long: "Shows all that a run acquired, and what became of it: processes, workspaces,\n" +
			"locks, ports, credentials and whatever its file declares.\n\n" +
			"With --leaked it shows, of all runs, what could not be released, or is held by\n" +
			"a run that has ended. The janitor goes on trying to release that.",
		Args: args(cobra.MaximumNArgs(1)),
	}
	cmd.Flags().BoolVar(&leaked, "leaked", false, "only what is leaked, of all runs or of the one named")
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		switch {
		case len(argv) == 0 && !leaked:
			return usage("which run? name one, or give --leaked for what is leaked of all")
		case len(argv) == 0:
			return a.connected(cmd.Context(), func(ctx context.Context, conn *Connection) error {
				return redisFault(a.leaked(ctx, conn, *out))
			})
		}
		return a.onRun(cmd.Context(), argv[0], func(ctx context.Context, t *target) error {
			return redisFault(t.resources(ctx, leaked, *out))
		})
	}
	return cmd
}

// resources shows what one run holds.
func (t *target) resources(ctx context.Context, onlyLeaked bool, out format) error {
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	if snap.NoAnswer != "" {
		// Progress only: the document is what counts.
		_, _ = fmt.Fprintln(t.Err, noAnswer(snap))
	}
	entries, err := t.ledgerOf(ctx, snap.Document.RunKey)
	if err != nil {
		return err
	}
	held := runs.HeldBy(snap.Document, entries, time.Now())
	if onlyLeaked {
		kept := held[:0]
		for _, h := range held {
			if h.State == run.ResourceLeaked {
				kept = append(kept, h)
			}
		}
		held = kept
	}
	return t.showHeld(held, out, false)
}

// ledgerOf is what the ledger has of a run; nothing, which is said, where there
// is no Redis.
func (t *target) ledgerOf(ctx context.Context, runKey string) ([]resource.Entry, error) {
	var rdb redis.UniversalClient
	if t.conn.Redis != nil {
		var err error
		if rdb, err = t.conn.Redis(); err != nil {
			return nil, err
		}
	}
	if rdb == nil {
		// Progress only.
		_, _ = fmt.Fprintln(t.Err, "no Redis is configured (REDIS_URL): only what the run itself says is shown")
		return nil, nil
	}
	return resource.NewLedger(rdb).Of(ctx, runKey)
}

// leaked shows what is leaked of all runs.
func (a *app) leaked(ctx context.Context, conn *Connection, out format) error {
	rdb, err := conn.openRedis(ctx, needsLedger)
	if err != nil {
		return err
	}
	var open []resource.Entry
	for e, err := range resource.NewLedger(rdb).Unreleased(ctx) {
		if err != nil {
			return err
		}
		open = append(open, e)
	}
	alive := liveness.EachOnce(liveness.New(conn.Temporal, conn.Namespace).Ask)
	dead := make([]bool, len(open))
	g := errgroup.Group{}
	g.SetLimit(ownersAtOnce)
	for i := range open {
		e := &open[i]
		if e.State == run.ResourceLeaked {
			dead[i] = true
			continue
		}
		g.Go(func() error {
			answer := alive(ctx, dedup.Owner{RunKey: e.RunKey, WorkflowID: e.WorkflowID, RunID: e.RunID})
			dead[i] = !answer.Alive
			return nil
		})
	}
	_ = g.Wait() // none fails
	held := []runs.Held{}
	for i := range open {
		if dead[i] {
			h := runs.HeldOf(&open[i])
			h.State = run.ResourceLeaked
			held = append(held, h)
		}
	}
	return a.showHeld(held, out, true)
}

// showHeld prints resources; of many runs, each with its run.
func (a *app) showHeld(held []runs.Held, out format, withRun bool) error {
	if out == formatJSON {
		return writeJSON(a.Out, resourcesDoc{Resources: held})
	}
	if len(held) == 0 {
		_, err := fmt.Fprintln(a.Err, "nothing")
		return err
	}
	return writeHeld(a.Out, held, withRun)
}

// writeHeld prints resources as a table.
func writeHeld(w io.Writer, held []runs.Held, withRun bool) error {
	head := []string{"STATE", "NODE", "KIND", "NAME", "SINCE", "TRIES", "HOST", "WHY"}
	if withRun {
		head = append(head, "RUN")
	}
	rows := [][]string{head}
	for i := range held {
		h := &held[i]
		since := "-"
		if h.Since != nil {
			since = h.Since.Local().Format(time.DateTime)
		}
		node := orDash(tree.Clean(h.Node))
		if h.Attempt > 1 {
			node += " (attempt " + strconv.Itoa(h.Attempt) + ")"
		}
		row := []string{
			string(h.State), node, h.Kind, tree.Clean(h.Name), since, strconv.Itoa(h.Attempts),
			orDash(h.Host), orDash(tree.Clean(h.Error)),
		}
		if withRun {
			row = append(row, tree.Clean(place(h.Run, h.RunID)))
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	for _, line := range tree.Table(rows) {
		b.WriteString(line + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing what is held: %w", err)
	}
	return nil
}
