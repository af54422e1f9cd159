// Package types holds the types of light tasks that there are, one a file.
package types

import (
	"context"
	"fmt"
	"strings"
	"time"

	"belay.run/internal/outbound"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// Tools are what the types work with. With the zero Tools tasks can be prepared,
// which is how files are checked; one that is run has no secrets and no files,
// and reaches what the zero guard lets pass.
type Tools struct {
	// Net is how the world is reached. Defaults to one as [outbound.New] makes it.
	Net *outbound.Net
	// Secrets are where secrets come from, and who may have them. Defaults to none.
	Secrets *secret.Vault
	// Files is the folder below which tasks may read and write files, "/" for all
	// that the worker's user may. Defaults to none.
	Files string
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Builtin are all types that Belay has.
func Builtin(t Tools) *task.Registry {
	if t.Net == nil {
		t.Net = outbound.New(outbound.Config{})
	}
	if t.Secrets == nil {
		t.Secrets = secret.NewVault(secret.Chain())
	}
	if t.Now == nil {
		t.Now = time.Now
	}
	return task.NewRegistry(
		noop{},
		httpType{t},
		healthCheck{t},
		webhookVerify{t},
		secretCheck{t},
		configSync{t},
		statusSync{t},
	)
}

// secretOf reads the secret of a task that may send it to host:port, or look at it
// and send it [secret.Nowhere]. One that is empty would let everybody pass for
// whoever holds it.
func (t Tools) secretOf(ctx context.Context, o task.Origin, param, name, to string) (secret.Value, error) {
	v, err := t.Secrets.Get(ctx, use(o, name, to))
	switch {
	case ctx.Err() != nil:
		return secret.Value{}, fmt.Errorf("%s: reading the secret %s: %w", param, name, context.Cause(ctx))
	case err != nil:
		return secret.Value{}, task.Failf(run.TriggerInvalid, "%s: %s", param, err)
	case strings.TrimSpace(v.Reveal()) == "":
		return secret.Value{}, task.Failf(run.TriggerInvalid, "%s: the secret %s is empty", param, name)
	}
	return v, nil
}

// use is a task's wish to send a secret somewhere.
func use(o task.Origin, name, to string) secret.Use {
	return secret.Use{Tenant: o.Tenant, Listed: o.Listed, Name: name, To: to}
}
