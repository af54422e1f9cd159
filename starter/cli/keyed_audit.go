package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/starter/runs"
)

const (
	// auditPatience bounds the writing, in the end, of entries that could not be
	// written when their duplicate was met: nobody else makes up for them.
	auditPatience = 10 * time.Second
	auditAgain    = 200 * time.Millisecond
)

// write audits a duplicate that no run of ours will find.
func (r *request) write(ctx context.Context, of runs.Ref, first dedup.Request, d audit.Decision, mismatch bool, tier string) {
	k := r.keyed
	if k.audit == nil {
		k.unaudited = true
		return
	}
	// What cannot be written now is in the end: see settleAudit.
	_ = k.audit.Write(ctx, audit.Entry{
		Tenant: k.key.Tenant, Project: k.key.Project, Pipeline: k.key.Pipeline, Key: k.key.Name,
		Owner: of.ID, OwnerRun: of.RunID, By: r.input.Sender, Decision: d, Mismatch: mismatch, Tier: tier,
		RootCause: audit.RootCause(first, dedup.Request{ID: r.input.RequestID, Sender: r.input.Sender}),
		RequestID: r.input.RequestID, Delivery: r.input.Delivery,
	})
}

// settleAudit writes what could not be written when a duplicate was met, and says
// so where it still cannot.
func (r *request) settleAudit(ctx context.Context, w io.Writer) {
	if r.keyed == nil {
		return
	}
	const unknown = "warning: the audit does not know of this duplicate: "
	if r.keyed.audit == nil {
		if r.keyed.unaudited {
			// Whether this can be written shows with the command's end.
			_, _ = fmt.Fprintln(w, unknown+"REDIS_URL is not set, or is not that of a Redis")
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	for {
		err := r.keyed.audit.Flush(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(auditAgain):
		case <-ctx.Done():
			// Whether this can be written shows with the command's end.
			_, _ = fmt.Fprintf(w, unknown+"%v\n", err)
			return
		}
	}
}
