package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/liveness"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/store"
)

// Claimer makes claims. *dedup.Claims is one.
type Claimer interface {
	Claim(ctx context.Context, c dedup.Claim) (dedup.Verdict, error)
	Renew(ctx context.Context, r dedup.Record, lease time.Duration) error
	Settle(ctx context.Context, s dedup.Settlement) error
	Lookup(ctx context.Context, k dedup.Key) (*dedup.Record, error)
	Last(ctx context.Context, k dedup.Key) (*dedup.Record, error)
	Recovering(ctx context.Context) (since time.Time, ok bool, err error)
	Now(ctx context.Context) (time.Time, error)
}

// Auditor writes down what was decided about duplicates. *audit.Log is one.
type Auditor interface {
	Write(ctx context.Context, e audit.Entry) error
}

// Measurer remembers how long things took, and derives windows from that.
// *durations.Durations is one.
type Measurer interface {
	Add(ctx context.Context, s durations.Subject, took time.Duration) error
	Window(ctx context.Context, s durations.Subject, timeout time.Duration) (time.Duration, error)
}

// ClaimsConfig is what claims need.
type ClaimsConfig struct {
	Client    client.Client
	Namespace string
	// Claims, Audit and Durations are nil where no Redis is configured.
	Claims    Claimer
	Audit     Auditor
	Durations Measurer
	// Store keeps the outputs that are too large for a record.
	Store store.Store
	// Meter hears of claims that are lost. Defaults to one that does not.
	Meter Meter
	// Logger defaults to one that says nothing.
	Logger *zap.Logger
}

// Claims holds the activities that claim the keys of pipelines and settle those
// of pipelines and steps. They stand beside the workflows; steps claim their
// keys themselves, where they run.
type Claims struct {
	ClaimsConfig

	alive *liveness.Asker
}

// NewClaims returns Claims.
func NewClaims(cfg ClaimsConfig) *Claims {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Meter = meterOr(cfg.Meter)
	return &Claims{ClaimsConfig: cfg, alive: liveness.New(cfg.Client, cfg.Namespace)}
}

// errNoRedis is what claims fail with where no Redis is configured.
var errNoRedis = fmt.Errorf("%w: no Redis is configured: set REDIS_URL", dedup.ErrUnavailable)

// Waits between two tries while Redis is away.
const (
	awayFirst = 100 * time.Millisecond
	awayMost  = 2 * time.Second
)

// patiently calls f again for as long as it fails because Redis cannot be
// reached, up to the patience that the risk asks for.
func (c *Claims) patiently(ctx context.Context, in *Claiming, f func() error) error {
	if c.Claims == nil {
		return errNoRedis
	}
	deadline := time.Now().Add(in.patience())
	for wait := awayFirst; ; wait = min(2*wait, awayMost) {
		err := f()
		if !errors.Is(err, dedup.ErrUnavailable) || time.Now().Add(wait).After(deadline) {
			return err
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// patience is how long one waits for Redis: what is at low risk goes on without.
func (in *Claiming) patience() time.Duration {
	if in.Risk == spec.RiskLow {
		return 0
	}
	return in.ClaimTimeout
}

// unavailable is the cause of what could not be claimed for want of Redis.
func (in *Claiming) unavailable(err error) run.Cause {
	return run.Cause{Trigger: run.TriggerDependencyUnavailable, Source: in.Owner.Node, Message: fmt.Sprintf(
		"key %q could not be claimed within %s: %v", in.Key.Name, in.patience(), err)}
}

// decide claims, and takes over from an owner that is dead: whether it is, only
// Temporal knows. The dead one is the record that was taken over, if one was.
func (c *Claims) decide(ctx context.Context, in *Claiming, claim dedup.Claim) (v dedup.Verdict, dead *dedup.Record, err error) {
	const tries = 4 // others take over, too
	for range tries {
		v, err = c.Claims.Claim(ctx, claim)
		if err != nil || v.Decision != dedup.InFlight {
			return v, dead, err
		}
		if leased := v.Record.Until != nil; leased && !v.Expired {
			return v, nil, nil
		}
		answer := c.alive.Ask(ctx, v.Record.Owner)
		if answer.Alive {
			return v, nil, nil
		}
		if answer.State() != dedup.Completed {
			held := v.Record // v is the next verdict soon
			dead, claim.Dead = &held, held.Token
			continue
		}
		// It did its work and only could not say so.
		dead = nil
		err = c.Claims.Settle(ctx, dedup.Settlement{
			Held:  dedup.Held{Key: v.Record.Key, Owner: v.Record.Owner, Token: v.Record.Token},
			State: dedup.Completed, Window: c.window(ctx, in), Result: dedup.Result{Status: answer.Status},
		})
		if err != nil && !errors.Is(err, dedup.ErrNotOwner) {
			return v, nil, err
		}
	}
	return v, nil, nil
}

// window is how long a completed one blocks others.
func (c *Claims) window(ctx context.Context, in *Claiming) time.Duration {
	if in.Window > 0 {
		return in.Window
	}
	if c.Durations == nil {
		return max(durations.WindowDefault, 2*in.Timeout)
	}
	window, err := c.Durations.Window(ctx, in.subject(), in.Timeout)
	if err != nil {
		c.Logger.Warn("no measured durations for a window; taking the default", zap.Error(err))
	}
	return window
}

func (in *Claiming) subject() durations.Subject {
	return durations.Subject{Tenant: in.Key.Tenant, Project: in.Key.Project, Pipeline: in.Pipeline, Node: in.Owner.Node}
}

// audit writes an entry about a request in the face of a record. One that cannot
// be written has been logged and keeps nobody from running.
func (c *Claims) audit(ctx context.Context, in *Claiming, of *dedup.Record, d audit.Decision, mismatch bool, tier string) {
	if c.Audit == nil {
		return
	}
	e := audit.Entry{
		Tenant: in.Key.Tenant, Project: in.Key.Project, Pipeline: in.Pipeline, Key: in.Key.Name,
		Run: in.Owner.WorkflowID, Node: in.Owner.Node, By: in.Request.Sender, Decision: d, Mismatch: mismatch,
		RequestID: in.Request.ID, Delivery: in.Delivery, Tier: tier,
	}
	if of != nil {
		e.Owner, e.OwnerRun = of.Owner.WorkflowID, of.Owner.RunID
		e.RootCause = audit.RootCause(of.Request, in.Request)
	}
	if err := c.Audit.Write(ctx, e); err != nil {
		c.Logger.Debug("an audit entry was not written", zap.Error(err))
	}
}

func tier(v dedup.Verdict) string {
	if v.Local {
		return audit.TierLocal
	}
	return audit.TierRedis
}
