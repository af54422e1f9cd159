package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

const (
	// maxBatch bounds the body of a batch.
	maxBatch = 2 << 30
	// startWithin bounds its start, once its tasks are in the store.
	startWithin = 30 * time.Second
	// batchPath is where batches are.
	batchPath = "/api/v1/batches/"
)

// startBatch puts the tasks of a body into the store while they come, and starts
// the batch of them. Nothing of it stays there if the batch does not start.
func (a *API) startBatch(w http.ResponseWriter, r *http.Request, c *call) error {
	in, name, err := batchOf(r, c.who)
	if err != nil {
		return err
	}
	select {
	case a.uploads <- struct{}{}:
		defer func() { <-a.uploads }()
	default:
		if a.ctx.Err() != nil {
			return closing()
		}
		return problemf(http.StatusTooManyRequests, "busy", "%d batches are on their way to this worker: try again, or another", uploadsAtOnce).again(later)
	}
	if err := a.pack(r, c, &in); err != nil {
		return err
	}
	d, attached, err := a.begin(r, c, in, name)
	if err != nil {
		return err
	}
	w.Header().Set("Location", batchPath+url.PathEscape(d.ID))
	if attached {
		a.answerJSON(w, http.StatusOK, d)
		return nil
	}
	a.answerJSON(w, http.StatusAccepted, d)
	return nil
}

// pack puts the tasks of a body into the store.
func (a *API) pack(r *http.Request, c *call, in *batch.Input) error {
	// The answer comes after all of the body.
	_ = c.ctl.SetWriteDeadline(time.Time{})
	ctx, end := a.cut(r)
	defer end()
	from, done := a.bodyOf(ctx, r, c, maxBatch, a.times.upload)
	packed, err := batch.Pack(ctx, from, c.Store, in.Folder, in.ChunkSize, &linesOf{c, in.Tenant})
	done(err)
	if err == nil {
		in.Total = packed.Total
		return nil
	}
	if problemOf(err) != nil {
		return fmt.Errorf("reading a batch: %w", err)
	}
	return a.unavailable(r, "the store", err)
}

// begin starts a batch whose tasks are in the store, and removes them from there
// where nobody will run them.
func (a *API) begin(r *http.Request, c *call, in batch.Input, name string) (d *batch.Document, attached bool, err error) {
	// A client that goes away now gets what it asked for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), startWithin)
	defer cancel()
	started, err := c.Batches.Start(ctx, in, name)
	if err == nil && !started.Attached {
		d := in.Document(started.ID, started.RunID, time.Now().UTC())
		return &d, false, nil
	}
	there, readErr := c.Batches.Read(ctx, run.BatchID(in.Tenant, in.Project, name))
	if readErr == nil && there.Folder == in.Folder {
		return there, false, nil // the answer to its start was lost
	}
	if _, none := errors.AsType[*control.UnknownError](readErr); readErr != nil && !none {
		// Whether it has started nobody knows: what it may need stays.
		a.log.Warn("the tasks of a batch that may not have started are left in the store", zap.String("folder", in.Folder))
		return nil, false, a.unavailable(r, "Temporal", errors.Join(err, readErr))
	}
	if err := batch.Remove(ctx, c.Store, in.Folder); err != nil {
		a.log.Warn("the tasks of a batch that was not started are left in the store", zap.String("folder", in.Folder), zap.Error(err))
	}
	if err != nil || readErr != nil {
		return nil, false, a.unavailable(r, "Temporal", errors.Join(err, readErr))
	}
	a.auditBatch(ctx, c, &in, there, name)
	return there, true, nil
}

// auditBatch keeps who sent a batch that had been started.
func (a *API) auditBatch(ctx context.Context, c *call, in *batch.Input, of *batch.Document, name string) {
	if c.Audit == nil {
		return
	}
	// What cannot be written is logged and counted there.
	_ = c.Audit.Write(ctx, audit.Entry{
		Tenant: in.Tenant, Project: in.Project, Owner: of.ID, OwnerRun: of.RunID, By: in.Sender,
		Decision: audit.Attached, RequestID: name, Delivery: uuid.NewString(), Tier: audit.TierTemporal,
		RootCause: audit.RootCause(dedup.Request{ID: name}, dedup.Request{ID: name, Sender: in.Sender}),
	})
}

// batchOf reads what a request says of its batch, save for the tasks.
func batchOf(r *http.Request, who caller) (in batch.Input, name string, err error) {
	if err := expect(r, "application/x-ndjson", "application/jsonl"); err != nil {
		return in, "", err
	}
	if r.ContentLength > maxBatch {
		return in, "", &http.MaxBytesError{Limit: maxBatch}
	}
	q := query{values: r.URL.Query()}
	q.only("tenant", "project", "concurrency", "rate", "chunk")
	in = batch.Input{
		Folder: batch.NewFolder(), Sender: who.sender,
		ChunkSize:   int(q.number("chunk", batch.ChunkDefault, 1, batch.ChunkMost)),
		Concurrency: int(q.number("concurrency", 0, 0, batch.ConcurrencyMost)),
		Rate:        q.rate("rate"),
	}
	if q.err != nil {
		return in, "", q.err
	}
	if in.Tenant, err = who.tenantOr(q.values.Get("tenant")); err != nil {
		return in, "", err
	}
	if in.Project, err = projectOr(q.values.Get("project")); err != nil {
		return in, "", err
	}
	name, err = idempotency(r)
	if name == "" {
		name = uuid.NewString()
	}
	return in, name, err
}

// query reads the parameters of a request, and notes the first that is wrong.
type query struct {
	values url.Values
	err    error
}

func (q *query) wrong(format string, args ...any) {
	if q.err == nil {
		q.err = problemf(http.StatusBadRequest, "bad_request", format, args...)
	}
}

func (q *query) only(names ...string) {
	for name, values := range q.values {
		switch {
		case !slices.Contains(names, name):
			q.wrong("there is no parameter %.64q: there are %s", name, strings.Join(names, ", "))
		case len(values) > 1:
			q.wrong("%s is given twice", name)
		}
	}
}

func (q *query) number(name string, usual, low, high int64) int64 {
	text := q.values.Get(name)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		q.wrong("%s: want a whole number from %d to %d, found %.64q", name, low, high, text)
	}
	return n
}

// rate is 0 where none is given.
func (q *query) rate(name string) float64 {
	text := q.values.Get(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n != 0 && !(n >= batch.RateLeast && n <= batch.RateMost) { // not a number is neither
		q.wrong("%s: want a number from %g to %.0f, or 0, found %.64q", name, batch.RateLeast, batch.RateMost, text)
	}
	return n
}
