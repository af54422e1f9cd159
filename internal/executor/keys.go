package executor

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// Claims makes and settles claims of keys in bulk.
type Claims interface {
	// ClaimBatch is that of [dedup.Claims].
	ClaimBatch(ctx context.Context, claims []dedup.Claim) ([]dedup.Verdict, error)
	// SettleBatch is that of [dedup.Claims].
	SettleBatch(ctx context.Context, settlements []dedup.Settlement) ([]error, error)
}

// Auditor keeps what was decided about duplicates; an [audit.Log] is one.
type Auditor interface {
	Write(ctx context.Context, e audit.Entry) error
}

const (
	// slack is how much longer than its task's timeout a claim is leased: when
	// the lease is over, its task is too, and whoever had it is dead.
	slack = 10 * time.Second
	// away is how long Redis is not asked after it could not be reached.
	away = time.Second
	// bulkRate and bulkBurst bound how many duplicates of batches the audit hears of:
	// a batch that is run again is nothing else, and would leave it no room.
	bulkRate, bulkBurst = 10, 100
	// outputName is under what a record keeps a task's output.
	outputName = "output"
)

// keys has tasks with a key done once. When Redis is away, tasks run without their
// claim, as steps at low risk do: what must not run twice is no light task. That
// is counted, and logged once a second.
type keys struct {
	claims   group[dedup.Claim, dedup.Verdict]
	settles  group[dedup.Settlement, error]
	log      *zap.Logger
	observer Observer
	// audit may be nil; bulk bounds what it hears of tasks of batches.
	audit Auditor
	bulk  *rate.Limiter
	// id and serial name the owners of tasks of no run.
	id     string
	serial atomic.Uint64
	// awayUntil is when Redis is asked again, in ns since 1970.
	awayUntil atomic.Int64
}

// newKeys returns nil where there is nowhere to claim keys.
func newKeys(cfg *Config, log *zap.Logger) *keys {
	claims := cfg.Claims
	if claims == nil {
		return nil
	}
	return &keys{
		claims:  group[dedup.Claim, dedup.Verdict]{ask: claims.ClaimBatch},
		settles: group[dedup.Settlement, error]{ask: claims.SettleBatch},
		log:     log, observer: cfg.Observer, audit: cfg.Audit, bulk: rate.NewLimiter(bulkRate, bulkBurst), id: uuid.NewString(),
	}
}

// claim claims the key of a task that is about to run. It returns true with the
// result of one that need not run.
func (k *keys) claim(it *item, origin *task.Origin) (task.Result, bool) {
	claim := k.question(it)
	v, err := k.ask(claim)
	if err == nil && v.Decision == dedup.InFlight && v.Expired {
		dead := v.Record
		claim.Dead = dead.Token // its task ended before its lease did
		v, err = k.ask(claim)
		if it.retried = err == nil && v.Decision.Runs(); it.retried {
			k.tell(it, &dead, audit.Takeover, v.Local)
		}
	}
	if err != nil {
		k.observer.Unclaimed()
		return task.Result{}, false
	}
	r := task.Result{
		ID: it.task.ID, Type: it.task.Type, Status: task.Duplicate,
		Waited: it.began.Sub(it.queued), Took: time.Since(it.began),
	}
	switch v.Decision {
	case dedup.Granted, dedup.Resumed:
		it.claim = &v.Record
		it.retried = it.retried || v.Decision == dedup.Resumed
		if origin.IdempotencyKey == "" {
			origin.IdempotencyKey = dedup.IdempotencyKey(v.Record)
		}
		return task.Result{}, false
	case dedup.Done:
		r.Status = task.Succeeded
		fallthrough
	case dedup.Duplicate:
		r.Output = recorded(v.Record.Result)
	case dedup.InFlight, dedup.Late, dedup.Redelivered:
	}
	switch v.Decision {
	case dedup.Granted, dedup.Resumed, dedup.Done: // it is its own
	case dedup.Duplicate:
		k.tell(it, &v.Record, audit.Answered, v.Local)
	case dedup.InFlight, dedup.Late, dedup.Redelivered:
		k.tell(it, &v.Record, audit.Rejected, v.Local)
	}
	return r, true
}

func (k *keys) question(it *item) dedup.Claim {
	t := it.task
	owner := dedup.Owner{RunKey: t.Origin.Run, Node: t.Origin.Node + "#" + t.ID}
	if owner.RunKey == "" {
		owner.RunKey = k.id + "-" + strconv.FormatUint(k.serial.Add(1), 10)
	}
	owner.WorkflowID, owner.RunID = owner.RunKey, owner.RunKey
	return dedup.Claim{
		Key:   dedup.Key{Tenant: t.Origin.Tenant, Project: t.Origin.Project, Name: t.Key},
		Owner: owner, Lease: it.timeout + grace + slack, Request: dedup.Request{Sender: t.Origin.Sender},
	}
}

// tell has the audit keep what became of a task since another has its key, or had
// it and is dead.
func (k *keys) tell(it *item, of *dedup.Record, d audit.Decision, local bool) {
	if k.audit == nil || it.to.batch && !k.bulk.Allow() {
		return
	}
	o := &it.task.Origin
	e := audit.Entry{
		Tenant: o.Tenant, Project: o.Project, Pipeline: o.Pipeline, Key: it.task.Key,
		Run: o.Run, Node: o.Node, Owner: of.Owner.WorkflowID, By: o.Sender, Decision: d,
		RootCause: audit.RootCause(of.Request, dedup.Request{Sender: o.Sender}),
		RequestID: o.IdempotencyKey, Delivery: o.Run + "/" + o.Node, Tier: audit.TierRedis,
	}
	if of.Owner.RunID != of.Owner.WorkflowID { // a step's
		e.OwnerRun = of.Owner.RunID
	}
	if local {
		e.Tier = audit.TierLocal
	}
	// What cannot be written is logged and counted there, and no reason to stop.
	_ = k.audit.Write(context.WithoutCancel(it.ctx), e)
}

// ask waits for the answer to a claim.
func (k *keys) ask(claim dedup.Claim) (dedup.Verdict, error) {
	if time.Now().UnixNano() < k.awayUntil.Load() {
		return dedup.Verdict{}, dedup.ErrUnavailable
	}
	type answer struct {
		verdict dedup.Verdict
		err     error
	}
	answered := make(chan answer, 1)
	k.claims.put(claim, func(v dedup.Verdict, err error) { answered <- answer{v, err} })
	a := <-answered
	if a.err != nil {
		k.gone("light tasks run without their claims for now", a.err)
	}
	return a.verdict, a.err
}

// gone notes that Redis could not be reached.
func (k *keys) gone(what string, err error) {
	now, until := time.Now(), k.awayUntil.Load()
	if now.UnixNano() >= until && k.awayUntil.CompareAndSwap(until, now.Add(away).UnixNano()) {
		k.log.Warn(what, zap.Error(err))
	}
}

// settle records how a task ended whose key is claimed, and then calls done: a
// failed one frees its key before anybody hears that it failed.
func (k *keys) settle(it *item, r *task.Result, done func()) {
	c := it.claim
	s := dedup.Settlement{
		Held: dedup.Held{Key: c.Key, Owner: c.Owner, Token: c.Token}, State: dedup.Failed, Window: it.window, Grant: c,
		Result: dedup.Result{Status: run.Failed},
	}
	if r.Status == task.Succeeded && !it.fellBack {
		s.State, s.Result = dedup.Completed, record(r.Output)
	}
	k.settles.put(s, func(one, all error) {
		switch {
		case all != nil:
			k.gone("how light tasks ended is not recorded for now: their keys block until their leases are over", all)
		case one != nil:
			k.log.Warn("how a light task ended was not recorded", append(fields(it), zap.Error(one))...)
		}
		done()
	})
}

// record is an output as a claim keeps it. What is too long for it is left out.
func record(out task.Output) dedup.Result {
	r := dedup.Result{Status: run.Succeeded}
	if len(out) == 0 {
		return r
	}
	text, err := json.Marshal(out)
	if err != nil || len(text)+len(outputName) > dedup.MaxOutputs {
		r.Summary = "its output is not recorded: it is too long, or not to be written as JSON"
		return r
	}
	r.Outputs = map[string]string{outputName: string(text)}
	return r
}

// recorded is the output that a claim keeps; none where it keeps none of a light
// task.
func recorded(r dedup.Result) task.Output {
	var out task.Output
	if err := json.Unmarshal([]byte(r.Outputs[outputName]), &out); err != nil {
		return nil // it was left out, or a step of another kind recorded its own
	}
	return out
}
