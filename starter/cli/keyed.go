package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

const (
	// lookPatience bounds each question to Redis: the starter only spares a
	// workflow, and the claim in the run decides.
	lookPatience = 3 * time.Second
	// windowSlack is how much later Temporal closes a run, at most, than its
	// claim is settled.
	windowSlack = 2 * time.Second
)

// keyed is what the start of a pipeline with a key knows.
type keyed struct {
	key         dedup.Key
	plan        *spec.Plan
	onDuplicate string
	fingerprint string

	claims    *dedup.Claims // nil: Redis cannot be asked
	audit     *audit.Log
	durations *durations.Durations
	// unaudited: a duplicate was met, and there is no audit to tell of it.
	unaudited bool
	// looked: Redis has told how the key stands, which is known then.
	looked bool
	known  *dedup.Record
}

// begun is what a start came to.
type begun struct {
	ref runs.Ref
	// attached: another run stands for this request, or, own, the one that it
	// has begun before.
	attached, own bool
	// rejected: it was refused because of that run.
	rejected bool
	// mismatch: that run has other inputs.
	mismatch bool
	// blind: that run has completed, and Redis could not tell whether its window
	// is over.
	blind bool
}

// withKey evaluates the key of the pipeline, if it has one.
func (r *request) withKey(plan *spec.Plan) error {
	if r.input.DedupKey != "" {
		if err := giveKey(plan, r.input.DedupKey); err != nil {
			return err
		}
	}
	key, err := plan.DedupKey(r.input.Tenant, r.input.Project)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	if key == "" {
		return r.withoutKey(plan)
	}
	fingerprint, err := plan.Fingerprint()
	if err != nil {
		return err
	}
	r.keyed = &keyed{
		key:  dedup.Key{Tenant: r.input.Tenant, Project: r.input.Project, Pipeline: plan.Name, Name: key},
		plan: plan, onDuplicate: plan.Dedup.OnDuplicate, fingerprint: fingerprint,
	}
	if r.input.OnDuplicate != "" {
		r.keyed.onDuplicate = r.input.OnDuplicate
	}
	return nil
}

// giveKey puts the key of --dedup-key in the place of the one that the file gives.
func giveKey(plan *spec.Plan, key string) error {
	if err := spec.CheckKey(key); err != nil {
		return usage("--dedup-key: %v", err)
	}
	given := spec.DefaultDedup(key)
	if plan.Dedup != nil {
		own := *plan.Dedup
		own.Key, own.Env = given.Key, nil
		given = &own
	}
	plan.Dedup = given
	return nil
}

// withoutKey refuses what means nothing without a key of the pipeline, or of any
// of its steps.
func (r *request) withoutKey(plan *spec.Plan) error {
	for flag, given := range map[string]bool{
		"--on-duplicate": r.input.OnDuplicate != "", "--rerun": r.input.Rerun && !plan.KeyedSteps(),
	} {
		if given {
			err := usage("%s has no meaning for a pipeline without a key", flag)
			err.Hint = "give it dedup: {key: …}, or use --dedup-key"
			return err
		}
	}
	return nil
}

// openKeyed reaches for Redis, and dates the request by its clock: by that one
// told whether a request was made before another failed. Without Redis the run
// finds out.
func (r *request) openKeyed(ctx context.Context, conn *Connection) {
	k := r.keyed
	if k == nil || conn.Redis == nil {
		return
	}
	r.input.RequestedAt = time.Time{}
	rdb, err := conn.Redis()
	if err != nil || rdb == nil {
		return
	}
	claims, err := dedup.Open(rdb, dedup.Options{}) //nolint:contextcheck,nolintlint // it lives as long as the command; the linter does not always follow it
	if err != nil {
		return
	}
	// Tried also where Redis does not answer now: it may when a duplicate is met.
	k.audit = audit.New(rdb, audit.Options{Later: true})
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	now, err := claims.Now(ctx)
	if err != nil {
		claims.Close()
		return
	}
	r.input.RequestedAt = now
	k.claims, k.durations = claims, durations.New(rdb)
}

// startKeyed starts the run of a pipeline with a key, or finds the one that
// stands for it.
func (r *request) startKeyed(ctx context.Context, c *runs.Client, t client.Client) (begun, error) {
	if b := r.look(ctx); b != nil {
		return *b, nil
	}
	if r.keyed.onDuplicate == spec.OnDuplicateReplace {
		b, err := r.startPlain(ctx, t)
		if err != nil || !b.attached {
			return b, err
		}
		return r.met(ctx, c, b) // delivered again before its run had the key
	}
	id := run.KeyedID(r.input.Tenant, r.input.Project, r.pipeline, r.keyed.key.Name)
	reuse := enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	if r.input.Rerun {
		reuse = enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE
	}
	b, err := r.execute(ctx, t, id, reuse)
	if err != nil || !b.attached {
		return b, err
	}
	over, err := r.windowOver(ctx, c, b.ref)
	if err != nil {
		return begun{}, err
	}
	if over {
		b, err = r.execute(ctx, t, id, enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE)
		if err != nil || !b.attached {
			return b, err
		}
	}
	return r.met(ctx, c, b)
}

// look answers from what Redis knows, without a workflow: a request that began a
// run before means that run; a completed one inside its window stands for it, and
// so does a failure that came after the request was made. It is nil where none of
// that is so.
func (r *request) look(ctx context.Context) *begun {
	k := r.keyed
	if k.claims == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	if r.named {
		record, err := k.claims.LookupRequest(asking, k.key, r.input.RequestID)
		if err != nil {
			return nil
		}
		if record != nil {
			return r.answer(ctx, record, true)
		}
	}
	if r.input.Rerun || k.onDuplicate == spec.OnDuplicateReplace {
		return nil
	}
	record, err := k.claims.Lookup(asking, k.key)
	if err != nil {
		return nil
	}
	k.looked, k.known = true, record
	if record == nil || record.State == dedup.Running {
		return nil
	}
	if record.State != dedup.Completed && (record.EndedAt == nil || r.input.RequestedAt.After(*record.EndedAt)) {
		return nil
	}
	return r.answer(ctx, record, false)
}

// answer answers with the run of a record.
func (r *request) answer(ctx context.Context, record *dedup.Record, own bool) *begun {
	k := r.keyed
	b := &begun{ref: runs.Ref{ID: record.Owner.WorkflowID, RunID: record.Owner.RunID}, attached: true, own: own}
	mismatch := k.mismatch(record)
	decision := audit.Answered
	if record.State == dedup.Running {
		decision = audit.Attached
	}
	decision = k.refuse(b, mismatch, decision)
	r.write(ctx, b.ref, record.Request, decision, mismatch, audit.TierRedis)
	return b
}

// refuse refuses a duplicate where the file says so, and returns what is audited:
// decision where it is not refused. A request's own run is never held against it.
func (k *keyed) refuse(b *begun, mismatch bool, decision audit.Decision) audit.Decision {
	b.mismatch = mismatch && !b.own
	switch {
	case b.own:
		return decision
	case mismatch && k.plan.Dedup.OnMismatch == spec.OnDuplicateReject:
		decision = audit.Mismatch
	case k.onDuplicate == spec.OnDuplicateReject:
		decision = audit.Rejected
	default:
		return decision
	}
	b.rejected = true
	return decision
}

// mismatch reports whether a claim is that of a run with other inputs.
func (k *keyed) mismatch(record *dedup.Record) bool {
	return record.Fingerprint != "" && record.Fingerprint != k.fingerprint
}

// windowOver reports whether the run that Temporal holds against the start has
// completed longer ago than the window, or was released: the claim is gone, and
// Temporal agrees.
func (r *request) windowOver(ctx context.Context, c *runs.Client, ref runs.Ref) (bool, error) {
	k := r.keyed
	if !k.looked || k.known != nil {
		return false, nil
	}
	// What an operator has released blocks nobody, whatever Temporal holds.
	last, err := k.claims.Last(ctx, k.key)
	if err == nil && last != nil && last.State == dedup.Released && last.Owner.RunID == ref.RunID {
		return true, nil
	}
	completed, err := c.Completion(ctx, ref)
	if err != nil || completed.IsZero() {
		return false, err
	}
	window := k.plan.Dedup.Window
	if window == 0 {
		subject := durations.Subject{Tenant: k.key.Tenant, Project: k.key.Project, Pipeline: k.key.Pipeline}
		if window, err = k.durations.Window(ctx, subject, k.plan.Timeout); err != nil {
			return false, nil //nolint:nilerr // Redis went away meanwhile: the run decides
		}
	}
	left := completed.Add(window).Sub(r.input.RequestedAt)
	if left <= 0 {
		return true, nil
	}
	if left > windowSlack {
		return false, nil
	}
	// Redis counts from the settlement, which comes a moment before the end.
	select {
	case <-time.After(left):
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// met decides what becomes of a start that Temporal refused because of a run.
func (r *request) met(ctx context.Context, c *runs.Client, b begun) (begun, error) {
	k := r.keyed
	first, err := c.Input(ctx, b.ref)
	if err != nil {
		return begun{}, err
	}
	b.own = first.RequestID != "" && first.RequestID == r.input.RequestID
	mismatch := k.known != nil && k.known.Owner.RunID == b.ref.RunID && k.mismatch(k.known)
	if k.known == nil {
		mismatch = r.differs(first)
	}
	decision := audit.Attached
	if completed, err := c.Completion(ctx, b.ref); err == nil && !completed.IsZero() {
		decision, b.blind = audit.Answered, !k.looked && !b.own
	}
	decision = k.refuse(&b, mismatch, decision)
	r.write(ctx, b.ref, dedup.Request{ID: first.RequestID, Sender: first.Sender}, decision, mismatch, audit.TierTemporal)
	return b, nil
}

// differs reports whether a run was started with other inputs.
func (r *request) differs(of *workflows.PipelineInput) bool {
	file, report := spec.Parse(of.Path, []byte(of.File))
	if report.Err() != nil {
		return false
	}
	plan, err := file.Plan(of.Inputs)
	if err != nil {
		return false
	}
	fingerprint, err := plan.Fingerprint()
	return err == nil && fingerprint != r.keyed.fingerprint
}

// execute asks Temporal to start the run. It is attached where Temporal has one
// under the id that the reuse policy holds against it.
func (r *request) execute(ctx context.Context, t client.Client, id string, reuse enumspb.WorkflowIdReusePolicy) (begun, error) {
	started, err := t.ExecuteWorkflow(ctx, r.options(id, reuse), workflows.PipelineWorkflow, r.input)
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case errors.As(err, &already):
		return begun{ref: runs.Ref{ID: id, RunID: already.RunId}, attached: true}, nil
	case err != nil:
		return begun{}, fmt.Errorf("starting the run: %w", err)
	}
	return begun{ref: runs.Ref{ID: id, RunID: started.GetRunID()}}, nil
}
