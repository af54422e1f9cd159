package api

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"

	"github.com/google/uuid"

	"belay.run/internal/task"
)

const (
	headerTrace       = "Traceparent"
	headerIdempotency = "Idempotency-Key"
	// maxIdempotency bounds that header: it is part of a workflow's id.
	maxIdempotency = 200
)

var (
	traceParent    = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)
	noTrace        = regexp.MustCompile(`^00-0{32}-|-0{16}-[0-9a-f]{2}$`)
	idempotencyKey = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)
)

// idempotency is the Idempotency-Key of a request; empty where it has none.
func idempotency(r *http.Request) (string, error) {
	values := r.Header.Values(headerIdempotency)
	if len(values) == 0 {
		return "", nil
	}
	if len(values) > 1 || !idempotencyKey.MatchString(values[0]) {
		return "", problemf(http.StatusBadRequest, "bad_request", "%s: want one of 1 to %d visible characters of ASCII", headerIdempotency, maxIdempotency)
	}
	return values[0], nil
}

// trace is the trace context of a request. One that is none is left out, as its
// standard has it, and a new trace begins.
func trace(r *http.Request) string {
	if values := r.Header.Values(headerTrace); len(values) == 1 && traceParent.MatchString(values[0]) && !noTrace.MatchString(values[0]) {
		return values[0]
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // it never fails
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01"
}

// origin says for whom the task of a request runs. Each request is a node of its
// own: two with the same key are two, whatever they say of themselves.
func (q *request) origin(r *http.Request, who caller) (task.Origin, error) {
	key, err := idempotency(r)
	if err != nil {
		return task.Origin{}, err
	}
	tenant, err := who.tenantOr(q.Tenant)
	if err != nil {
		return task.Origin{}, err
	}
	project, err := projectOr(q.Project)
	if err != nil {
		return task.Origin{}, err
	}
	if len(q.Pipeline) > maxName || len(q.Run) > maxName {
		return task.Origin{}, problemf(http.StatusBadRequest, "bad_request", "pipeline, run: at most %d bytes", maxName)
	}
	id := uuid.NewString()
	if key == "" {
		key = id // for what is tried again on the way
	}
	return task.Origin{
		Tenant: tenant, Project: project, Pipeline: q.Pipeline, Run: q.Run, Node: "http/" + id,
		TraceParent: trace(r), IdempotencyKey: key, Sender: who.sender,
	}, nil
}
