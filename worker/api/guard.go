package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"belay.run/internal/config"
	"belay.run/internal/run"
)

// caller is who makes a request.
type caller struct {
	// tenant is whose token it bears; empty: whose the request is, is what it
	// says.
	tenant string
	// sender names the caller in the audit.
	sender string
}

// tenantOr is the tenant of a request that says that it is of one.
func (c caller) tenantOr(said string) (string, error) {
	switch {
	case c.tenant != "":
		return c.tenant, nil
	case said == "":
		return run.DefaultTenant, nil
	case !run.ValidScope(said):
		return "", problemf(http.StatusBadRequest, "bad_request", "tenant: want %s", run.ScopeWords)
	}
	return said, nil
}

func projectOr(said string) (string, error) {
	switch {
	case said == "":
		return run.DefaultProject, nil
	case !run.ValidScope(said):
		return "", problemf(http.StatusBadRequest, "bad_request", "project: want %s", run.ScopeWords)
	}
	return said, nil
}

type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// guarded has h serve only those who may ask: who bear a token where tokens are
// asked for, and no web page that somebody on this machine looks at.
func (a *API) guarded(h http.Handler) http.Handler {
	var pages http.CrossOriginProtection
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.cfg.Loopback {
			// A name that is bound anew to 127.0.0.1 makes the worker part of
			// the page's own origin. The page's name then stands in Host.
			if !ofThisMachine(r.Host) {
				a.answer(w, problemf(http.StatusForbidden, "forbidden", "this worker answers requests to 127.0.0.1 or localhost only, this one is to %.100q", r.Host))
				return
			}
			if err := pages.Check(r); err != nil {
				a.answer(w, problemf(http.StatusForbidden, "forbidden", "a web page of another origin may not ask this worker"))
				return
			}
		}
		who, p := a.identify(r)
		if p != nil {
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="belay"`)
			}
			a.answer(w, p)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

// Guard has h serve only those who bear a token, where tokens are asked for.
func (a *API) Guard(h http.Handler) http.Handler {
	if a.cfg.Tokens == nil {
		return h
	}
	return a.guarded(h)
}

// identify tells who makes a request.
func (a *API) identify(r *http.Request) (caller, *Problem) {
	if a.cfg.Tokens == nil {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		return caller{sender: "http@" + host}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return caller{}, problemf(http.StatusUnauthorized, "unauthorized", "a token is needed: Authorization: Bearer TOKEN")
	}
	t, ok, wait := a.attempts.find(a.cfg.Tokens, r.RemoteAddr, token)
	if wait > 0 {
		return caller{}, problemf(http.StatusTooManyRequests, "too_many_attempts", "too many tokens from this address were wrong").again(wait)
	}
	if !ok {
		return caller{}, problemf(http.StatusUnauthorized, "unauthorized", "the token is none of those that this worker knows")
	}
	who := caller{tenant: t.Tenant, sender: "http:" + t.Secret}
	if t.Tenant == config.AnyTenant {
		who.tenant = ""
	}
	return who, nil
}

// ofThisMachine reports whether a Host header names this machine.
func ofThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
