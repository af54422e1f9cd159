package types

import (
	"context"
	"net/http"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// okay are the statuses of an answer that is well.
func okay() statuses { return statuses{{low: 200, high: 299, text: "2xx"}} }

// httpSource is a URL.
type httpSource struct {
	tools Tools
	call  call
}

func (s *httpSource) id() string { return hashOf([]byte(s.call.url.String())) }

func (s *httpSource) fetch(ctx context.Context, o task.Origin, etag string) (fetched, error) {
	c := s.call
	if etag != "" {
		c.header = http.Header{"If-None-Match": {etag}}
	}
	a, err := c.do(ctx, s.tools, o)
	if err != nil {
		return fetched{}, err
	}
	if etag != "" && a.status == http.StatusNotModified {
		return fetched{same: true}, nil
	}
	// Not 2xx: a part of it, or nothing, is no configuration.
	if err := c.expected(a, statuses{{low: 200, high: 200, text: "200"}}); err != nil {
		return fetched{}, err
	}
	return fetched{content: a.body, etag: a.header.Get("ETag")}, nil
}

// httpTarget is a URL that is asked by GET and set by PUT. It keeps no note.
type httpTarget struct {
	tools Tools
	call  call
}

func (t *httpTarget) read(ctx context.Context, o task.Origin) (state, error) {
	a, err := t.call.do(ctx, t.tools, o)
	switch {
	case err != nil:
		return state{}, err
	case a.status == http.StatusNotFound || a.status == http.StatusNoContent || a.status == http.StatusGone:
		return state{}, nil
	}
	if err := t.call.expected(a, statuses{{low: 200, high: 200, text: "200"}}); err != nil {
		return state{}, err
	}
	return state{content: a.body, found: true, etag: a.header.Get("ETag")}, nil
}

// write says which version it replaces, where the target names its versions: if
// that has changed since, the target refuses. A redirect is not followed, as
// it would turn the PUT into a GET that changes nothing and answers 200.
func (t *httpTarget) write(ctx context.Context, o task.Origin, was state, content []byte) error {
	c := t.call
	c.method, c.body, c.keep = http.MethodPut, content, false
	c.header = http.Header{"Content-Type": {http.DetectContentType(content)}}
	if was.etag != "" && !strings.HasPrefix(was.etag, "W/") {
		c.header["If-Match"] = []string{was.etag}
	}
	a, err := c.do(ctx, t.tools, o)
	if err != nil {
		return err
	}
	if a.status == http.StatusPreconditionFailed {
		return &task.Failure{
			Trigger: run.TriggerExitCode, Message: c.String() + ": somebody else changed it meanwhile", Retryable: true,
		}
	}
	return c.expected(a, okay())
}

func (*httpTarget) remember(context.Context, task.Origin, note) error { return nil }
