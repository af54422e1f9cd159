package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
)

type releaseFlags struct {
	scopeFlags

	reason string
	yes    bool
	output *format
}

// releaseDoc is what release prints under -o json.
type releaseDoc struct {
	Released bool   `json:"released"`
	Tenant   string `json:"tenant"`
	Project  string `json:"project"`
	Pipeline string `json:"pipeline"`
	Key      string `json:"key"`
	// State is what the claim was in, Owner whose it was.
	State dedup.State `json:"state"`
	Owner string      `json:"owner"`
	Node  string      `json:"node"`
}

func dedupReleaseCommand(a *app) *cobra.Command {
	f := &releaseFlags{}
	cmd := &cobra.Command{
		Use:   "release KEY",
		Short: "Take a key from whatever holds it, so that the next request runs",
		Long: "Takes a key from the run or the step that holds it, and writes that to the audit.\n" +
			"It returns when no worker blocks on the old state any more, which takes some seconds.\n\n" +
			"Where the owner still runs, the next request runs beside it: that needs --yes.",
		Args: args(cobra.ExactArgs(1)),
	}
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.reason, "reason", "", "why; the audit keeps it (needed)")
	flags.BoolVar(&f.yes, "yes", false, "also where the owner still runs")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		key, err := f.key(argv[0])
		if err != nil {
			return err
		}
		if f.reason == "" {
			return usage("--reason is needed: the audit keeps why a key was released")
		}
		return a.withClaims(cmd.Context(), func(ctx context.Context, conn *Connection, rdb redis.UniversalClient, claims *dedup.Claims) error {
			r := &releaser{
				app: a, claims: claims, audit: audit.New(rdb, audit.Options{}),
				alive: liveness.New(conn.Temporal, conn.Namespace).Ask,
			}
			return r.release(ctx, key, f)
		})
	}
	return cmd
}

type releaser struct {
	*app

	claims *dedup.Claims
	audit  *audit.Log
	alive  func(context.Context, dedup.Owner) liveness.Answer
}

func (r *releaser) release(ctx context.Context, key dedup.Key, f *releaseFlags) error {
	held, err := r.claims.Lookup(ctx, key)
	if err != nil {
		return err
	}
	if held == nil || held.State != dedup.Running && held.State != dedup.Completed {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("nothing holds %s", key), Hint: "a failed or cancelled run blocks nobody"}
	}
	if held.State == dedup.Running && !f.yes {
		if err := r.refuse(ctx, held); err != nil {
			return err
		}
	}
	was, err := r.claims.ReleaseByOperator(ctx, key)
	if err != nil {
		return err
	}
	if was == nil {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("nothing holds %s any more", key)}
	}
	if err := r.note(ctx, was, f.reason); err != nil {
		return fmt.Errorf("the key is released, and the audit does not know: %w", err)
	}
	if *f.output == formatJSON {
		return writeJSON(r.Out, releaseDoc{
			Released: true, Tenant: key.Tenant, Project: key.Project, Pipeline: key.Pipeline, Key: key.Name,
			State: was.State, Owner: place(was.Owner.WorkflowID, was.Owner.RunID), Node: was.Owner.Node,
		})
	}
	_, err = fmt.Fprintf(r.Out, "released %s, which was %s for %s\n", key, was.State, place(was.Owner.WorkflowID, was.Owner.RunID))
	return err
}

// refuse is the error of a release that would let a second run beside a first;
// nil where the owner is dead.
func (r *releaser) refuse(ctx context.Context, held *dedup.Record) error {
	answer := r.alive(ctx, held.Owner)
	owner := place(held.Owner.WorkflowID, held.Owner.RunID)
	switch {
	case answer.Unsure:
		return &ExitError{Code: ExitUnreachable, Err: fmt.Errorf("whether %s still runs is not known: %w", owner, answer.Err), Hint: "--yes releases the key all the same"}
	case answer.Alive:
		return &ExitError{
			Code: ExitUsage, Err: fmt.Errorf("%s still runs: a request that comes now would run beside it", owner),
			Hint: "cancel it, or give --yes",
		}
	}
	return nil
}

// note writes the release to the audit.
func (r *releaser) note(ctx context.Context, was *dedup.Record, reason string) error {
	return r.audit.Write(ctx, audit.Entry{
		Tenant: was.Key.Tenant, Project: was.Key.Project, Pipeline: was.Key.Pipeline, Key: was.Key.Name, Node: was.Owner.Node,
		Owner: was.Owner.WorkflowID, OwnerRun: was.Owner.RunID, By: whoami(), Decision: audit.OperatorRelease,
		Delivery: uuid.NewString(), Tier: audit.TierRedis, Reason: reason,
	})
}
