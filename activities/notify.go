package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/proc"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/telemetry"
)

const (
	// commandWithin bounds the command of a notify, and commandGrace what it has
	// after SIGTERM.
	commandWithin = 30 * time.Second
	commandGrace  = 2 * time.Second
	// webhookWithin bounds a POST.
	webhookWithin = 10 * time.Second
	// maxAnswer is how much of a webhook's answer is read.
	maxAnswer = 1 << 10
)

// NotifierConfig is what telling people needs.
type NotifierConfig struct {
	Client    client.Client
	Namespace string
	// Proc runs commands, each in a directory of its own below Dir.
	Proc    *proc.Host
	Dir     string
	Secrets secret.Provider
	// Environment is what commands get of the worker's variables.
	Environment []string
	Logger      *zap.Logger
}

// Notifier holds the activity that tells people what leaked.
type Notifier struct {
	cfg     NotifierConfig
	http    *http.Client
	outages outages
}

// NewNotifier returns a Notifier.
func NewNotifier(cfg NotifierConfig) *Notifier {
	cfg.Logger = telemetry.OrNop(cfg.Logger)
	return &Notifier{cfg: cfg, outages: outages{all: map[string]outage{}}, http: &http.Client{
		Timeout: webhookWithin,
		// What is sent may not follow to where nobody meant it to go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Notify writes to the log what leaked, or is released after all, and tells
// those who asked to be told. It may tell twice, as what it does is retried.
func (n *Notifier) Notify(ctx context.Context, in NotifyInput) error {
	unstick(ctx, n.cfg.Client, n.cfg.Namespace)
	defer beating(ctx)()
	if activity.GetInfo(ctx).Attempt == 1 {
		n.log(&in.Notice)
	}
	if in.Notify == nil {
		return nil
	}
	names := in.Notify.Secrets
	if in.Notify.Secret != "" {
		names = []string{in.Notify.Secret}
	}
	values, err := secret.Load(ctx, n.cfg.Secrets, names)
	if errors.Is(err, secret.ErrNotFound) {
		return fail(run.Cause{Trigger: run.TriggerInvalid, Message: fmt.Sprintf("notify: %v", err)})
	}
	if err != nil {
		return n.told(ctx, &in, fmt.Errorf("reading the secrets of notify: %w", err))
	}
	text, err := json.Marshal(in.Notice)
	if err != nil {
		return fmt.Errorf("writing a notice: %w", err)
	}
	if in.Notify.Command != "" {
		return n.told(ctx, &in, n.command(ctx, &in, text, values))
	}
	return n.told(ctx, &in, n.webhook(ctx, &in, text, values))
}

// log says what happened of each resource.
func (n *Notifier) log(notice *Notice) {
	for i := range notice.Resources {
		r := &notice.Resources[i]
		fields := []zap.Field{
			zap.String("run", notice.RunKey), zap.String("workflow", notice.Run), zap.String("node", r.Node),
			zap.String("kind", r.Kind), zap.String("name", r.Name), zap.String("host", r.Host), zap.Int("attempts", r.Attempts),
		}
		if notice.Event == EventLeaked {
			n.cfg.Logger.Error("could not release a resource; the janitor goes on trying", append(fields, zap.String("why", r.Error))...)
		} else {
			n.cfg.Logger.Info("released a resource that had leaked", fields...)
		}
	}
}

// webhook sends the notice as a POST.
func (n *Notifier) webhook(ctx context.Context, in *NotifyInput, text []byte, values []secret.Value) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.Notify.Webhook, bytes.NewReader(text))
	if err != nil {
		return fail(run.Cause{Trigger: run.TriggerInvalid, Message: fmt.Sprintf("notify: %v", err)})
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", in.Notice.id())
	for _, v := range values {
		req.Header.Set("Authorization", "Bearer "+v.Reveal())
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return fmt.Errorf("notifying %s: %w", req.URL.Host, withoutAddress(err))
	}
	// Only the status counts, so neither can fail the notice; the rest is read so
	// that the connection can be used again, if it is not much.
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("notifying %s: it answered %s", req.URL.Host, resp.Status)
	}
	return nil
}

// withoutAddress is what happened, without the address, which may hold a token.
func withoutAddress(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		return at.Err
	}
	return err
}

// id names a notice: one that is sent again has the same.
func (n *Notice) id() string {
	return fmt.Sprintf("%s/%s/%d", n.RunKey, n.Event, n.At.UnixNano())
}

// command runs the script of a notify, with the notice in a file.
func (n *Notifier) command(ctx context.Context, in *NotifyInput, text []byte, values []secret.Value) error {
	if _, err := secret.NewMasker(values...); err != nil {
		return fail(run.Cause{Trigger: run.TriggerInvalid, Message: fmt.Sprintf("notify: %v", err)})
	}
	const notice = "notice.json"
	command := script{
		proc: n.cfg.Proc, what: "the command of notify", base: n.cfg.Dir, prefix: "notice-",
		remove: func(_ context.Context, dir string) error { return os.RemoveAll(dir) },
		text:   in.Notify.Command, secrets: values, more: map[string][]byte{notice: text}, most: maxSaid,
		worker: n.cfg.Environment,
		env: func(dir string) map[string]string {
			return map[string]string{
				"BELAY_EVENT": in.Notice.Event, "BELAY_NOTICE": filepath.Join(dir, notice),
				"BELAY_RUN_ID": in.Notice.Run, "BELAY_RUN_KEY": in.Notice.RunKey, "BELAY_PIPELINE": in.Notice.Pipeline,
			}
		},
		job: proc.Job{Node: "notify/" + in.Notice.RunKey, Grace: commandGrace, DeadMan: commandWithin + commandGrace},
	}
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	res, said, err := command.run(ctx)
	if err != nil {
		return fmt.Errorf("running the command of notify: %w", err)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("the command of notify: %s%s", res, said)
	}
	return nil
}
