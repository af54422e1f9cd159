package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"belay.run/internal/batch"
	"belay.run/internal/task"
	"belay.run/internal/tracing"
)

const (
	// maxTask bounds the body of a task, as it bounds a line of a batch.
	maxTask = batch.MaxLine
	// maxName bounds what a request calls its pipeline and its run.
	maxName = 200
)

// request is a task as a body has it.
type request struct {
	batch.Line

	Tenant   string `json:"tenant"`
	Project  string `json:"project"`
	Pipeline string `json:"pipeline"`
	Run      string `json:"run"`
}

// requestHas is what a request may have, for people.
const requestHas = "a task has id, type, with, key, priority and timeout, and tenant, project, pipeline and run"

var errTooLong = errors.New("a request for a task may take no longer: use a batch")

// runTask runs a task and answers what it came to, with 200 also where it failed:
// the request did not.
func (a *API) runTask(w http.ResponseWriter, r *http.Request, c *call) error {
	t, err := a.readTask(r, c)
	if err != nil {
		return err
	}
	if err := c.allowed(&t); err != nil {
		return err
	}
	// The answer takes as long as the task does.
	_ = c.ctl.SetWriteDeadline(time.Time{})
	ctx, cancel := context.WithTimeoutCause(r.Context(), a.times.task, errTooLong)
	defer cancel()
	res, err := c.Executor.Submit(ctx, t)
	if err != nil {
		return err
	}
	a.log.Debug("task of a request ended", zap.String("task", t.ID), zap.String("tenant", t.Origin.Tenant), zap.String("node", t.Origin.Node), zap.String("trace_id", tracing.TraceID(t.Origin.TraceParent)), zap.String("status", string(res.Status)))
	switch res.Status {
	case task.Skipped:
		if ctx.Err() != nil {
			return problemf(http.StatusServiceUnavailable, "queue_full", "the task did not begin within %s", a.times.task).again(later)
		}
		return closing()
	case task.Succeeded, task.Failed, task.Duplicate:
	}
	a.answerJSON(w, http.StatusOK, &res)
	return nil
}

// readTask reads the task of a request.
func (a *API) readTask(r *http.Request, c *call) (task.Task, error) {
	if err := expect(r, "application/json"); err != nil {
		return task.Task{}, err
	}
	from, done := a.bodyOf(r.Context(), r, c, maxTask, a.times.read)
	text, err := io.ReadAll(from)
	done(err)
	if err != nil {
		return task.Task{}, fmt.Errorf("reading a task: %w", err)
	}
	var q request
	if err := batch.Decode(text, &q, requestHas); err != nil {
		return task.Task{}, problemf(http.StatusBadRequest, "invalid_task", "%s", err)
	}
	t, err := q.Task(uuid.NewString())
	if err != nil {
		return t, problemf(http.StatusBadRequest, "invalid_task", "%s", err)
	}
	t.Origin, err = q.origin(r, c.who)
	return t, err
}

// expect refuses bodies of another kind, and encoded ones: a small one may become
// a large one.
func expect(r *http.Request, kinds ...string) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || !slices.Contains(kinds, kind):
		return problemf(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type: want %s", strings.Join(kinds, " or "))
	case r.Header.Get("Content-Encoding") != "":
		return problemf(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding: none is understood")
	}
	return nil
}
