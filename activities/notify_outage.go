package activities

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"belay.run/internal/run"
)

// maxOutages bounds how many of those who cannot be told are remembered, and
// outageKept how long after the last try.
const (
	maxOutages = 1000
	outageKept = time.Hour
)

// outages are those who cannot be told: the log says so once, and once that they
// can be told again, however often it is tried. It is safe for concurrent use.
type outages struct {
	mu  sync.Mutex
	all map[string]outage
}

type outage struct {
	since, last time.Time
	tries       int
}

// failed counts a try that failed and reports whether it is the first.
func (o *outages) failed(who string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	known, ok := o.all[who]
	if !ok {
		o.makeRoom(now)
		known.since = now
	}
	known.last = now
	known.tries++
	o.all[who] = known
	return !ok
}

// makeRoom forgets those whom nobody has tried to tell for long, or any where there
// are too many.
func (o *outages) makeRoom(now time.Time) {
	for who, out := range o.all {
		if now.Sub(out.last) > outageKept || len(o.all) >= maxOutages {
			delete(o.all, who)
		}
	}
}

// over ends an outage, if there is one.
func (o *outages) over(who string) (outage, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out, ok := o.all[who]
	delete(o.all, who)
	return out, ok
}

// told takes note of how a try to tell somebody went. An error that may pass is
// returned as one of which the SDK writes no line for each try.
func (n *Notifier) told(ctx context.Context, in *NotifyInput, err error) error {
	who, name := addressee(in)
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	switch {
	case ok && app.NonRetryable(), ctx.Err() != nil: // as the worker stops
		return err
	case err != nil:
		if n.outages.failed(who, time.Now()) {
			n.cfg.Logger.Warn("could not notify; the next line about it is when that goes well again",
				zap.String("who", name), zap.String("run", in.Notice.RunKey), zap.String("workflow", in.Notice.Run), zap.Error(err))
		}
		return temporal.NewApplicationErrorWithOptions(err.Error(), string(run.TriggerDependencyUnavailable),
			temporal.ApplicationErrorOptions{Category: temporal.ApplicationErrorCategoryBenign})
	}
	if out, was := n.outages.over(who); was {
		n.cfg.Logger.Info("could notify again", zap.String("who", name),
			zap.Int("failed_tries", out.tries), zap.Duration("after", time.Since(out.since).Round(time.Second)))
	}
	return nil
}

// addressee is who is told, and by which name that is logged: the address of a
// webhook may hold a token.
func addressee(in *NotifyInput) (who, name string) {
	if in.Notify.Webhook != "" {
		return in.Notify.Webhook, "the webhook at " + hostOf(in.Notify.Webhook)
	}
	who = "the command of " + in.Notice.Tenant + "/" + in.Notice.Project + "/" + in.Notice.Pipeline
	return who, who
}

// hostOf is the host of an address.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return "?"
}
