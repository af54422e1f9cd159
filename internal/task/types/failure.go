package types

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"
	"unicode"

	"belay.run/internal/outbound"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// detail is how much of another's words a message holds.
const detail = 300

// failure is what an error comes to that stopped a task while it did something
// in the world: whose fault it is, and whether to try again. None of the secrets
// is in its message, whatever the other side sent.
func failure(ctx context.Context, doing string, err error, hidden ...secret.Value) error {
	refused, isRefused := errors.AsType[*outbound.RefusedError](err)
	redirects, isRedirects := errors.AsType[*outbound.RedirectsError](err)
	switch {
	case over(ctx):
		return &task.Failure{
			Trigger: run.TriggerStepTimeout, Message: doing + ": no whole answer in time", Retryable: true, Fault: true,
		}
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case isRefused:
		return task.Failf(run.TriggerInvalid, "%s: %s", doing, refused)
	case isRedirects:
		return task.Failf(run.TriggerExitCode, "%s: %s", doing, redirects)
	case errors.Is(err, outbound.ErrDowngrade):
		return task.Failf(run.TriggerExitCode, "%s: %s", doing, outbound.ErrDowngrade)
	case ours(err):
		return &task.Failure{
			Trigger: run.TriggerLimitExceeded, Message: doing + ": this worker has no more sockets: " + words(err, hidden), Retryable: true,
		}
	}
	return task.Faultf("%s: %s", doing, words(err, hidden))
}

// over reports whether a task's time is. A connection, which has the same
// deadline, may say so before the context does.
func over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
	end, ok := ctx.Deadline()
	return ok && !time.Now().Before(end)
}

// ours reports whether this machine has run out of something, which the target
// can do nothing about.
func ours(err error) bool {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// words is what an error says, without the URL, which may hold secrets.
func words(err error, hidden []secret.Value) string {
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "there is no host " + dns.Name
	}
	return safe(err.Error(), hidden...)
}

// safe is text of another made fit to be shown: in one line, short, without
// secrets.
func safe(text string, hidden ...secret.Value) string {
	masker, err := secret.NewMasker(hidden...)
	if err != nil { // one is too short to be found by its look
		for _, v := range hidden {
			if strings.Contains(text, strings.TrimSpace(v.Reveal())) {
				return "(not shown, as it holds the secret " + v.Name() + ")"
			}
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, masker.String(text))
	if len(text) > detail {
		text = strings.ToValidUTF8(text[:detail], "") + "…"
	}
	return text
}
