package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/tree"
)

// ownersAtOnce is how many owners are asked for at one time.
const ownersAtOnce = 8

// statsDoc is what stats prints under -o json.
type statsDoc struct {
	audit.Stats

	InFlight inFlight `json:"in_flight"`
}

// inFlight are the claims that are held.
type inFlight struct {
	Claims int `json:"claims"`
	// Unknown is how many owners Temporal could not be asked for.
	Unknown int `json:"unknown"`
	// Dead are those whose owner is no longer open: they block nobody, and the
	// next sweep ends them.
	Dead []deadClaim `json:"dead"`
}

type deadClaim struct {
	Tenant    string    `json:"tenant"`
	Project   string    `json:"project"`
	Pipeline  string    `json:"pipeline"`
	Key       string    `json:"key"`
	Owner     string    `json:"owner"`
	Node      string    `json:"node"`
	ClaimedAt time.Time `json:"claimed_at"`
}

func dedupStatsCommand(a *app) *cobra.Command {
	var f audit.StatsFilter
	var since, until string
	var report bool
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count what was blocked, by tenant, pipeline and root cause, and what claims cost",
		Long: "Counts what was blocked, by tenant, pipeline and root cause, and what claims cost.\n\n" +
			"--report counts by the month and tenant instead: the runs and steps that did not run\n" +
			"again, why they were asked for, and what was decided. By default it is of this month\n" +
			"and the one before; --since goes back 400 days at most.",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "24h", "count the last `duration` (90m, 24h, 7d), or since a time (RFC 3339); whole hours, 32 days at most")
	flags.StringVar(&until, "until", "", "count up to a `time`, in the same forms")
	flags.BoolVar(&report, "report", false, "a report by the month and tenant; --since and --until are widened to whole months")
	flags.StringVar(&f.Tenant, "tenant", "", "only this `tenant`")
	flags.StringVar(&f.Project, "project", "", "only this `project`")
	flags.StringVar(&f.Pipeline, "pipeline", "", "only the pipeline of this `name`")
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = parseAgo("--since", since, time.Now()); err != nil {
			return err
		}
		if f.Until, err = parseAgo("--until", until, time.Now()); err != nil {
			return err
		}
		if !f.Until.IsZero() && !f.Since.Before(f.Until) {
			return usage("--since %s is not before --until %s", since, until)
		}
		if report {
			if !flags.Changed("since") {
				f.Since = time.Time{}
			}
			return a.withRedis(cmd.Context(), needsClaims, func(ctx context.Context, rdb redis.UniversalClient) error {
				return a.showReport(ctx, audit.New(rdb, audit.Options{}), f, *out)
			})
		}
		return a.withClaims(cmd.Context(), func(ctx context.Context, conn *Connection, rdb redis.UniversalClient, claims *dedup.Claims) error {
			stats, err := audit.New(rdb, audit.Options{}).Stats(ctx, f)
			if err != nil {
				return err
			}
			held, err := heldClaims(ctx, claims, liveness.New(conn.Temporal, conn.Namespace).Ask, f)
			if err != nil {
				return err
			}
			doc := &statsDoc{Stats: *stats, InFlight: *held}
			if *out == formatJSON {
				return writeJSON(a.Out, doc)
			}
			return writeStats(a.Out, doc)
		})
	}
	return cmd
}

// heldClaims counts the claims that are held, and asks Temporal for their owners.
func heldClaims(ctx context.Context, claims *dedup.Claims, ask func(context.Context, dedup.Owner) liveness.Answer, f audit.StatsFilter) (*inFlight, error) {
	var mu sync.Mutex
	held := &inFlight{Dead: []deadClaim{}}
	alive := liveness.EachOnce(ask)
	g := errgroup.Group{}
	g.SetLimit(ownersAtOnce)
	var listed error
	for r, err := range claims.Running(ctx) {
		if err != nil {
			listed = err
			break
		}
		if !about(&r, f) {
			continue
		}
		held.Claims++
		g.Go(func() error {
			answer := alive(ctx, r.Owner)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case answer.Unsure:
				held.Unknown++
			case !answer.Alive:
				held.Dead = append(held.Dead, deadClaim{
					Tenant: r.Key.Tenant, Project: r.Key.Project, Pipeline: r.Key.Pipeline, Key: r.Key.Name,
					Owner: place(r.Owner.WorkflowID, r.Owner.RunID), Node: r.Owner.Node, ClaimedAt: r.ClaimedAt,
				})
			}
			return nil
		})
	}
	_ = g.Wait() // none fails
	slices.SortFunc(held.Dead, func(a, b deadClaim) int { return a.ClaimedAt.Compare(b.ClaimedAt) })
	return held, listed
}

// about reports whether a claim is one that the filter means. The key of a step
// is its project's, so that no pipeline is asked for.
func about(r *dedup.Record, f audit.StatsFilter) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Tenant, r.Key.Tenant) && is(f.Project, r.Key.Project) && (r.Key.Pipeline == "" || is(f.Pipeline, r.Key.Pipeline))
}

// writeStats prints the counts as tables.
func writeStats(w io.Writer, d *statsDoc) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s\n", d.Since.Local().Format(time.DateTime), d.Until.Local().Format(time.DateTime))
	section := func(title string, rows [][]string) {
		fmt.Fprintf(&b, "\n%s\n", title)
		for _, line := range tree.Table(rows) {
			b.WriteString("  " + line + "\n")
		}
	}
	if len(d.Pipelines) == 0 {
		b.WriteString("\nnothing was claimed\n")
	} else {
		section("requests", pipelineRows(d.Pipelines))
	}
	if len(d.Overhead) > 0 {
		section("what claims cost", overheadRows(d.Overhead))
	}
	fmt.Fprintf(&b, "\nin flight: %s", counted(d.InFlight.Claims, "claim"))
	if d.InFlight.Unknown > 0 {
		fmt.Fprintf(&b, ", of %d Temporal could not say whether the owner lives", d.InFlight.Unknown)
	}
	b.WriteString("\n")
	if len(d.InFlight.Dead) > 0 {
		section("whose owner is no longer open (the next sweep ends them)", deadRows(d.InFlight.Dead))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the counts: %w", err)
	}
	return nil
}

func pipelineRows(pipelines []audit.PipelineStats) [][]string {
	head := []string{"TENANT", "PROJECT", "PIPELINE", "RAN", "BLOCKED", "RATE"}
	for _, cause := range audit.Causes() {
		head = append(head, strings.ToUpper(string(cause)))
	}
	rows := [][]string{append(head, "RERUN", "TAKEOVER")}
	for _, p := range pipelines {
		row := []string{
			tree.Clean(p.Tenant), tree.Clean(p.Project), orDash(tree.Clean(p.Pipeline)),
			digits(p.Granted), digits(p.Blocked), fmt.Sprintf("%.1f%%", 100*p.BlockedRate),
		}
		for _, cause := range audit.Causes() {
			row = append(row, digits(p.RootCauses[cause]))
		}
		rows = append(rows, append(row, digits(p.Decisions[audit.Rerun]), digits(p.Decisions[audit.Takeover])))
	}
	return rows
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

func overheadRows(tiers []audit.Overhead) [][]string {
	rows := [][]string{{"ANSWERED BY", "CLAIMS", "MEAN", "P50", "P95", "P99"}}
	for _, o := range tiers {
		row := []string{o.Tier, digits(o.Claims)}
		for _, seconds := range []float64{o.Mean, o.P50, o.P95, o.P99} {
			row = append(row, brief(seconds))
		}
		rows = append(rows, row)
	}
	return rows
}

// brief is a time that may be far under a second, to two or three digits.
func brief(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Second; unit > 1; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

func deadRows(dead []deadClaim) [][]string {
	rows := [][]string{{"CLAIMED", "KEY", "OWNER"}}
	for _, c := range dead {
		owner := c.Owner
		if c.Node != "" {
			owner += " (" + c.Node + ")"
		}
		rows = append(rows, []string{c.ClaimedAt.Local().Format(time.DateTime), tree.Clean(c.Key), tree.Clean(owner)})
	}
	return rows
}
