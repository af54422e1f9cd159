// Package api is what programs ask of a worker by HTTP: to run a light task, to
// run many, and how they stand. What it answers is described in
// docs/openapi.yaml.
package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"belay.run/docs"
	"belay.run/internal/audit"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/executor"
	"belay.run/internal/store"
	"belay.run/internal/task"
	"belay.run/internal/telemetry"
)

// Config is what an API is made of.
type Config struct {
	// Tokens are asked of everybody. Nil: none are, and whose a request is, is
	// what it says.
	Tokens *Tokens
	// Loopback says that only this machine reaches the API: requests that a web
	// page may have made are refused then.
	Loopback bool
	// Crowded reports whether there are more connections than the worker has room
	// for: who asks then is to come again. Nil: there never are.
	Crowded func() bool
	// Logger defaults to one that says nothing.
	Logger *zap.Logger

	// times and now are for tests; zero ones are the usual.
	times times
	now   func() time.Time
}

// times bound what clients may take.
type times struct {
	// read is how long a client has for all of a task, and for the next bytes of
	// a batch; write is how long it has to take an answer.
	read, write time.Duration
	// upload is how long it has for all of a batch.
	upload time.Duration
	// task bounds a task with its wait.
	task time.Duration
}

func (t times) complete() times {
	usual := func(d *time.Duration, usual time.Duration) {
		if *d == 0 {
			*d = usual
		}
	}
	usual(&t.read, 10*time.Second)
	usual(&t.write, 10*time.Second)
	usual(&t.upload, time.Hour)
	usual(&t.task, 15*time.Minute)
	return t
}

// Services are what the API hands requests on to. All are needed but Audit.
type Services struct {
	Executor Executor
	// Types checks the tasks of batches, and Secrets what they name of those.
	Types   Types
	Secrets Secrets
	Store   store.Store
	Batches Batches
	// Audit keeps who a duplicate was.
	Audit Audit
}

// Executor runs light tasks; that of package executor is one.
type Executor interface {
	Submit(ctx context.Context, t task.Task) (task.Result, error)
	Status() executor.Status
}

// Types know what tasks are given; a [task.Registry] does.
type Types interface {
	batch.Preparer
	// Secrets are the names of the secrets that a task is given.
	Secrets(t task.Task) []string
}

// Secrets say which secrets the tasks of a tenant may use; a [secret.Vault] does.
type Secrets interface {
	Granted(tenant, name string) error
}

// Batches starts batches, tells how they stand and asks them to cancel; a
// [control.Client] is one.
type Batches interface {
	Start(ctx context.Context, in batch.Input, name string) (control.Started, error)
	Read(ctx context.Context, id string) (*batch.Document, error)
	Cancel(ctx context.Context, id, by, reason string) error
}

// Audit keeps entries; an [audit.Log] is one.
type Audit interface {
	Write(ctx context.Context, e audit.Entry) error
}

// API answers requests. It is safe for concurrent use.
type API struct {
	cfg      Config
	log      *zap.Logger
	times    times
	handler  http.Handler
	methods  map[string]string // by path
	services atomic.Pointer[Services]
	work     flights
	uploads  chan struct{}
	results  chan struct{}
	attempts attempts
	closed   sync.Once
	// ctx ends when what is under way is to be cut short.
	ctx  context.Context //nolint:containedctx // it is that of the API, not of a request
	stop context.CancelCauseFunc
}

// uploadsAtOnce is how many batches may be on their way here at once: each holds
// a few chunks, and some bytes a task to tell ids apart.
const uploadsAtOnce = 4

// resultsAtOnce is how many may be sent their results at once: each of these holds
// a chunk.
const resultsAtOnce = 8

var errClosing = errors.New("the worker stops")

// New returns an API that answers that it is starting until Open is called.
func New(cfg Config) *API {
	a := &API{cfg: cfg, log: telemetry.OrNop(cfg.Logger), times: cfg.times.complete(), uploads: make(chan struct{}, uploadsAtOnce), results: make(chan struct{}, resultsAtOnce)}
	if a.attempts.now = cfg.now; cfg.now == nil {
		a.attempts.now = time.Now
	}
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	a.handler = a.routes()
	return a
}

// Open says that there is somebody to hand requests on to.
func (a *API) Open(s Services) { a.services.Store(&s) }

// Refuse has the API take no more work. It still tells how things stand.
func (a *API) Refuse() { a.work.close() }

// Wait waits, after Refuse, until all that was taken has been answered. When ctx
// ends before, bodies that are still on their way are cut off.
func (a *API) Wait(ctx context.Context) {
	select {
	case <-a.work.idle():
	case <-ctx.Done():
		a.stop(errClosing)
	}
}

// closeWithin bounds how long Close waits for what it cuts off.
const closeWithin = 5 * time.Second

// Close takes no more work and cuts off batches that are on their way. It returns
// when nothing is left of those in the store. It may be called twice.
func (a *API) Close() { a.closed.Do(a.close) }

func (a *API) close() {
	a.Refuse()
	a.stop(errClosing)
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	for range uploadsAtOnce { // whoever has all of their places is alone
		select {
		case a.uploads <- struct{}{}:
		case <-timer.C:
			return
		}
	}
}

// ServeHTTP answers what is below /api/.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Crowded == nil || !a.cfg.Crowded() {
		a.handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close")
	a.answer(w, problemf(http.StatusServiceUnavailable, "crowded", "this worker has no room for more connections: try again, or another").again(later))
}

// handler answers a request of somebody who may make it. An error that is no
// *Problem is an internal one.
type handler func(w http.ResponseWriter, r *http.Request, c *call) error

// call is a request, by whom, and who serves it.
type call struct {
	*Services

	who caller
	ctl *http.ResponseController
}

func (a *API) routes() http.Handler {
	mux := http.NewServeMux()
	a.methods = map[string]string{}
	// Methods are no part of the patterns: GET of all batches and whatever else of
	// what is below one would be at odds.
	handle := func(method, path string, h http.Handler) {
		if method == http.MethodGet {
			method = "GET, HEAD"
		}
		a.methods[path] = method
		mux.Handle(path, a.only(method, h))
	}
	route := func(method, path string, h handler) { handle(method, path, a.serving(h)) }
	route(http.MethodPost, "/api/v1/tasks", a.working(a.runTask))
	route(http.MethodPost, "/api/v1/batches", a.working(a.startBatch))
	route(http.MethodGet, "/api/v1/batches/{id...}", a.readBatch)
	route(http.MethodGet, "/api/v1/batches/{id}/results", a.working(a.readResults))
	route(http.MethodPost, "/api/v1/batches/{id}/cancel", a.cancelBatch)
	route(http.MethodGet, "/api/v1/executor/status", a.status)
	handle(http.MethodGet, "/api/v1/openapi.yaml", a.guarded(http.HandlerFunc(openAPI)))
	mux.Handle("/", a.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.answer(w, problemf(http.StatusNotFound, "not_found", "there is no %s", r.URL.Path))
	})))
	return mux
}

// serving has a handler serve requests of those who may make them, once there is
// somebody to hand them on to.
func (a *API) serving(h handler) http.Handler {
	return a.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Services: a.services.Load(), who: callerOf(r), ctl: http.NewResponseController(w)}
		err := error(starting())
		if c.Services != nil {
			err = h(w, r, c)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}))
}

// working has a handler take part in what is waited for when the worker drains.
func (a *API) working(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, c *call) error {
		if !a.work.enter() {
			return closing()
		}
		defer a.work.leave()
		return h(w, r, c)
	}
}

// status tells what the executor does. The names of targets whose circuits are
// not closed are of all tenants, and so not for one of them.
func (a *API) status(w http.ResponseWriter, _ *http.Request, c *call) error {
	s := c.Executor.Status()
	if c.who.tenant != "" {
		s.Open = nil
	}
	a.answerJSON(w, http.StatusOK, &s)
	return nil
}

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	// A client that has gone hears nothing.
	_, _ = w.Write(docs.OpenAPI())
}

// only has h serve requests of the methods that are allowed.
func (a *API) only(allowed string, h http.Handler) http.Handler {
	methods := strings.Split(allowed, ", ")
	wrong := a.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed)
		a.answer(w, problemf(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes %s, not %s", r.URL.Path, allowed, r.Method))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(methods, r.Method) {
			h.ServeHTTP(w, r)
			return
		}
		wrong.ServeHTTP(w, r)
	})
}
