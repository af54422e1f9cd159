package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/config"
	"belay.run/internal/secret"
	"belay.run/internal/telemetry"
)

const (
	// minToken is how long a token must be: a shorter one can be guessed.
	minToken = 16
	// tokensEvery is how often the secrets are read again, so that a token that
	// was replaced is not good for long.
	tokensEvery = time.Minute
	// tokensWithin bounds that.
	tokensWithin = 30 * time.Second
)

// Tokens are the bearer tokens of tenants. They are safe for concurrent use.
type Tokens struct {
	secrets secret.Provider
	listed  []config.HTTPToken
	log     *zap.Logger
	known   atomic.Pointer[[]token]
}

// token is one that is known, by its hash: those have one length, so that nothing
// of a token shows in how long it takes to compare them.
type token struct {
	config.HTTPToken

	sum [sha256.Size]byte
}

// ReadTokens reads the tokens that the settings list, all of which must be there.
func ReadTokens(ctx context.Context, secrets secret.Provider, listed []config.HTTPToken, log *zap.Logger) (*Tokens, error) {
	t := &Tokens{secrets: secrets, listed: listed, log: telemetry.OrNop(log)}
	if err := t.read(ctx); err != nil {
		return nil, fmt.Errorf("reading the tokens: %w", err)
	}
	return t, nil
}

func (t *Tokens) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tokensWithin)
	defer cancel()
	var errs []error
	known := make([]token, 0, len(t.listed))
	for _, l := range t.listed {
		v, err := t.secrets.Get(ctx, l.Secret)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		text := strings.TrimSpace(v.Reveal()) // files end in a line break
		if len(text) < minToken {
			errs = append(errs, fmt.Errorf("secret %s: a token needs at least %d bytes", l.Secret, minToken))
			continue
		}
		next := token{l, sha256.Sum256([]byte(text))}
		for _, k := range known {
			if k.sum == next.sum && k.Tenant != l.Tenant {
				errs = append(errs, fmt.Errorf("secrets %s and %s are one token for two tenants", k.Secret, l.Secret))
			}
		}
		known = append(known, next)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t.known.Store(&known)
	return nil
}

// Keep reads the tokens again, now and then, until ctx ends. What cannot be read
// leaves them as they were.
func (t *Tokens) Keep(ctx context.Context) {
	tick := time.NewTicker(tokensEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := t.read(ctx); err != nil && ctx.Err() == nil {
			t.log.Error("the tokens stay as they were", zap.Error(err))
		}
	}
}

// find is whose token one is. It compares with all, so that how long it takes
// does not tell which one was nearly it.
func (t *Tokens) find(presented string) (config.HTTPToken, bool) {
	sum := sha256.Sum256([]byte(presented))
	var found config.HTTPToken
	ok := false
	for _, k := range *t.known.Load() {
		if subtle.ConstantTimeCompare(sum[:], k.sum[:]) == 1 {
			found, ok = k.HTTPToken, true
		}
	}
	return found, ok
}
