package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/batch"
	"belay.run/internal/executor"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// Problem is an error as RFC 9457 has it.
type Problem struct { //nolint:errname // first of all a document
	// Type is a URN that ends in what went wrong, in a word.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// RetryAfter is when it is worth asking again, in seconds, as in the header.
	RetryAfter int `json:"retry_after,omitempty"`
	// Errors are the first of the bad lines of a batch, Count is how many there
	// are.
	Errors []BadLine `json:"errors,omitempty"`
	Count  int       `json:"count,omitempty"`
}

// BadLine is what is wrong with a line.
type BadLine struct {
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// problemType begins the types of problems.
const problemType = "urn:belay:problem:"

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

func problemf(status int, kind, format string, args ...any) *Problem {
	return &Problem{Type: problemType + kind, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// again says when it is worth asking again.
func (p *Problem) again(after time.Duration) *Problem {
	p.RetryAfter = int((after + time.Second - 1) / time.Second)
	return p
}

const (
	soon  = time.Second
	later = 5 * time.Second
)

func starting() *Problem {
	return problemf(http.StatusServiceUnavailable, "starting", "the worker is starting; /readyz says what it waits for").again(later)
}

func closing() *Problem {
	return problemf(http.StatusServiceUnavailable, "closing", "the worker stops and takes no more: ask another").again(soon)
}

// refused is the problem of a task that was not taken, or of a batch.
func refused(err *executor.RefusedError) *Problem {
	if err.Reason == executor.Closing {
		return closing()
	}
	return problemf(http.StatusTooManyRequests, string(err.Reason), "%s", err).again(err.RetryAfter)
}

// problemOf is the problem that an error is; nil where it is the worker's own.
func problemOf(err error) *Problem {
	var (
		own     *Problem
		full    *executor.RefusedError
		wrong   *task.Failure
		lines   *batch.InvalidError
		tooMany *batch.TooLargeError
		large   *http.MaxBytesError
		secrets *secret.RefusedError
	)
	switch {
	case errors.As(err, &secrets):
		return problemf(http.StatusForbidden, "secret_refused", "%s", secrets)
	case errors.As(err, &own):
		return own
	case errors.As(err, &full):
		return refused(full)
	case errors.As(err, &wrong):
		return problemf(http.StatusBadRequest, "invalid_task", "%s", wrong.Message)
	case errors.As(err, &lines):
		return badLines(lines)
	case errors.As(err, &tooMany):
		return problemf(http.StatusRequestEntityTooLarge, "too_large", "%s", tooMany.Message)
	case errors.As(err, &large):
		return problemf(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", large.Limit)
	case errors.Is(err, errClosing):
		return closing()
	case errors.Is(err, errSlow):
		return problemf(http.StatusRequestTimeout, "timeout", "%s", errSlow)
	case errors.Is(err, errCut):
		return problemf(http.StatusBadRequest, "bad_request", "%s", errCut)
	}
	return nil
}

func badLines(err *batch.InvalidError) *Problem {
	p := problemf(http.StatusBadRequest, "invalid_batch", "nothing was started: %s", err)
	p.Count = err.Count
	for _, l := range err.Errors {
		p.Errors = append(p.Errors, BadLine(l))
	}
	return p
}

// fail answers an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p == nil {
		if r.Context().Err() != nil {
			a.log.Debug("a client has gone", zap.String("path", r.URL.Path), zap.Error(err))
		} else {
			a.log.Error("could not answer a request", zap.String("path", r.URL.Path), zap.Error(err))
		}
		p = problemf(http.StatusInternalServerError, "internal", "the log of the worker says what went wrong")
	}
	a.answer(w, p)
}

// answer answers a problem.
func (a *API) answer(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusRequestTimeout {
		h.Set("Connection", "close") // so that the next request may find another worker
	}
	a.send(w, p.Status, "application/problem+json", p)
}

// answerJSON answers a document.
func (a *API) answerJSON(w http.ResponseWriter, status int, doc any) {
	a.send(w, status, "application/json", doc)
}

func (a *API) send(w http.ResponseWriter, status int, kind string, doc any) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		a.log.Error("could not write an answer", zap.Error(err))
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	a.hasten(w)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A client that has gone hears nothing.
	_, _ = w.Write(text.Bytes())
}

// hasten gives the client its time to take an answer, from now on.
func (a *API) hasten(w http.ResponseWriter) {
	// What has no deadlines is a recorder of a test.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.times.write))
}

// unavailable logs that a service did not do its part, and is the problem.
func (a *API) unavailable(r *http.Request, service string, err error) error {
	if r.Context().Err() != nil {
		return context.Cause(r.Context())
	}
	a.log.Warn("a request could not be served", zap.String("path", r.URL.Path), zap.String("service", service), zap.Error(err))
	return problemf(http.StatusServiceUnavailable, "unavailable", "%s does not do its part; the log of the worker says more", service).again(later)
}
