package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

var (
	errSlow = errors.New("the body did not come in time")
	errCut  = errors.New("the body broke off before its end")
)

// body reads the body of a request. Each read has a deadline of its own, so that
// a large body may take its time and one that stands still may not.
type body struct {
	ctx   context.Context //nolint:containedctx // that of the one request it is of
	from  io.Reader
	most  int64 // how many bytes it may have
	read  int64
	ctl   *http.ResponseController
	each  time.Duration
	until time.Time
}

// bodyOf returns the body of a request, and what is to be called when it was read,
// or not: from then on the client may be silent, or may not. Both end when ctx
// does.
func (a *API) bodyOf(ctx context.Context, r *http.Request, c *call, most int64, within time.Duration) (*body, func(error)) {
	b := &body{
		ctx: ctx, from: r.Body, most: most, ctl: c.ctl,
		each: a.times.read, until: time.Now().Add(within),
	}
	// What comes after the context's end finds that it has ended.
	stop := context.AfterFunc(ctx, func() { _ = c.ctl.SetReadDeadline(time.Unix(1, 0)) })
	return b, func(err error) {
		switch {
		case !stop():
		case err == nil:
			_ = c.ctl.SetReadDeadline(time.Time{}) // as above
		default:
			// The server reads on for a while, so that the answer is heard.
			_ = c.ctl.SetReadDeadline(time.Now().Add(a.times.read))
		}
	}
}

// Read reads what comes next. Its errors say whose fault they are.
func (b *body) Read(p []byte) (int, error) {
	deadline := time.Now().Add(b.each)
	if deadline.After(b.until) {
		deadline = b.until
	}
	// One without deadlines is a recorder of a test, which never waits.
	_ = b.ctl.SetReadDeadline(deadline)
	if b.ctx.Err() != nil {
		return 0, b.why(context.Cause(b.ctx))
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.most-b.read+1)])
	b.read += int64(n)
	switch {
	case b.read > b.most:
		return n - 1, &http.MaxBytesError{Limit: b.most}
	case err == nil, errors.Is(err, io.EOF): // that it broke off is another error
		return n, err
	}
	return n, b.why(err)
}

// why says what ended a body before its end. With its connection the server ends
// the request's context too, which is not what counts.
func (b *body) why(err error) error {
	switch {
	case errors.Is(context.Cause(b.ctx), errClosing):
		return errClosing
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.Join(errSlow, err)
	}
	return errors.Join(errCut, err)
}

// cut ends when the request's context does, or when the API cuts short what is
// under way, with that for a cause.
func (a *API) cut(r *http.Request) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(a.ctx, func() { cancel(context.Cause(a.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}
