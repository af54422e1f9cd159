package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.uber.org/zap"

	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/run"
)

// maxReason bounds why a batch is cancelled.
const maxReason = 200

// readBatch tells how a batch stands, or how it ended.
func (a *API) readBatch(w http.ResponseWriter, r *http.Request, c *call) error {
	d, err := a.find(r, c)
	if err != nil {
		return err
	}
	if err := control.Recount(r.Context(), c.Store, d); err != nil {
		d.Notes = append(d.Notes, "its account cannot be read from the store for now")
		a.log.Warn("could not count what a batch came to", zap.String("batch", d.ID), zap.Error(err))
	}
	a.answerJSON(w, http.StatusOK, d)
	return nil
}

// find is the batch that a request is about.
func (a *API) find(r *http.Request, c *call) (*batch.Document, error) {
	id := r.PathValue("id")
	unknown := problemf(http.StatusNotFound, "not_found", "there is no batch %.300q", id)
	if id == "" {
		return nil, unknown
	}
	if !strings.Contains(id, "/") {
		id = run.BatchID(cmp.Or(c.who.tenant, run.DefaultTenant), run.DefaultProject, id)
	}
	// What others have is not even there.
	if c.who.tenant != "" && !strings.HasPrefix(id, c.who.tenant+"/") {
		return nil, unknown
	}
	d, err := c.Batches.Read(r.Context(), id)
	if _, none := errors.AsType[*control.UnknownError](err); none {
		return nil, unknown
	}
	if err != nil {
		return nil, a.unavailable(r, "Temporal", err)
	}
	return d, nil
}

// readResults sends what the tasks of a batch that has ended came to, a line each.
func (a *API) readResults(w http.ResponseWriter, r *http.Request, c *call) error {
	d, err := a.find(r, c)
	if err != nil {
		return err
	}
	if !d.Status.Terminal() {
		return problemf(http.StatusConflict, "not_ended", "batch %s is %s: its results are there when it has ended", d.ID, d.Status)
	}
	select {
	case a.results <- struct{}{}:
		defer func() { <-a.results }()
	default:
		return problemf(http.StatusTooManyRequests, "busy", "the results of %d batches are on their way from this worker: try again, or another", resultsAtOnce).again(later)
	}
	ctx, end := a.cut(r)
	defer end()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &patient{ResponseWriter: w, ctl: c.ctl, each: a.times.write}
	if r.Method == http.MethodHead {
		return nil
	}
	err = batch.WriteResults(ctx, c.Store, d, out)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, batch.ErrGone):
		return problemf(http.StatusNotFound, "not_found", "the results of batch %s are not in the store any more", d.ID)
	case !out.begun:
		return a.unavailable(r, "the store", err)
	}
	// It is too late for another status: the client is to see that lines are
	// missing, and does as the end of the body cannot be sent any more.
	_ = c.ctl.SetWriteDeadline(time.Unix(1, 0)) // where that cannot be set it has gone
	a.log.Warn("the results of a batch broke off", zap.String("batch", d.ID), zap.Error(err))
	return nil
}

// patient gives the client its time for each piece of a long answer.
type patient struct {
	http.ResponseWriter

	ctl   *http.ResponseController
	each  time.Duration
	begun bool
}

func (p *patient) Write(text []byte) (int, error) {
	p.begun = true
	_ = p.ctl.SetWriteDeadline(time.Now().Add(p.each)) // a recorder of a test has none
	n, err := p.ResponseWriter.Write(text)
	if err != nil {
		return n, fmt.Errorf("sending results: %w", err)
	}
	return n, nil
}

// cancelBatch asks a batch to cancel. To ask again, or after its end, is no
// mistake.
func (a *API) cancelBatch(w http.ResponseWriter, r *http.Request, c *call) error {
	q := query{values: r.URL.Query()}
	q.only("reason")
	reason := q.values.Get("reason")
	if len(reason) > maxReason {
		q.wrong("reason: want at most %d bytes", maxReason)
	}
	if q.err != nil {
		return q.err
	}
	d, err := a.find(r, c)
	if err != nil {
		return err
	}
	if d.Status.Terminal() {
		a.answerJSON(w, http.StatusOK, d)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), startWithin)
	defer cancel()
	err = c.Batches.Cancel(ctx, d.ID, c.who.sender, reason)
	if _, ended := errors.AsType[*serviceerror.NotFound](err); ended {
		if d, err = a.find(r, c); err == nil {
			a.answerJSON(w, http.StatusOK, d)
		}
		return err
	}
	if err != nil {
		return a.unavailable(r, "Temporal", err)
	}
	a.log.Info("a batch is asked to cancel", zap.String("batch", d.ID), zap.String("by", c.who.sender), zap.String("reason", reason))
	d.Status = run.Cancelling
	w.Header().Set("Location", batchPath+url.PathEscape(d.ID))
	a.answerJSON(w, http.StatusAccepted, d)
	return nil
}
