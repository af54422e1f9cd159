package types_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/secret"
	"belay.run/internal/task"
)

const webhook = "webhook_verify"

// noon is when the webhooks of these tests come in.
func noon() time.Time { return time.Unix(1_800_000_000, 0) }

func webhookBundle(t *testing.T) *testBundle {
	t.Helper()
	return setup(t, func(b *testBundle) { b.Now = noon })
}

func sign(text string) string {
	mac := hmac.New(sha256.New, []byte(password))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// signed are webhooks of every provider that are right, sent at a time.
func signed(body string, at time.Time) map[string]with {
	seconds := strconv.FormatInt(at.Unix(), 10)
	long := hmac.New(sha512.New, []byte(password))
	long.Write([]byte(body))
	all := map[string]with{
		"github":     {"headers": with{"x-hub-signature-256": "sha256=" + sign(body)}},
		"gitlab":     {"headers": with{"X-Gitlab-Token": password}},
		"stripe":     {"headers": with{"Stripe-Signature": "t=" + seconds + ",v1=" + sign(seconds+"."+body)}},
		"slack":      {"headers": with{"X-Slack-Signature": "v0=" + sign("v0:"+seconds+":"+body), "X-Slack-Request-Timestamp": seconds}},
		"hmac":       {"headers": with{"X-Signature": sign(body)}},
		"hmac-time":  {"headers": with{"X-Sig": sign(seconds + "." + body), "X-Time": seconds}, "header": "X-Sig", "timestamp_header": "X-Time"},
		"hmac-other": {"headers": with{"X-Signature": "s=" + base64.StdEncoding.EncodeToString(long.Sum(nil))}, "algorithm": "sha512", "encoding": "base64", "prefix": "s="},
	}
	for name, w := range all {
		w["provider"], _, _ = strings.Cut(name, "-")
		w["secret"], w["body"] = "TOKEN", body
	}
	return all
}

func TestWebhookHolds(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	for name, w := range signed(`{"a": 1}`+"\n", noon().Add(-time.Minute)) {
		out := b.succeeds(t, webhook, w)
		require.Equal(t, true, out["valid"], name)
		if out["age_s"] != nil {
			require.Equal(t, 60, out["age_s"], name)
		}
		raw := maps.Clone(w)
		delete(raw, "body")
		raw["body_base64"] = base64.StdEncoding.EncodeToString([]byte(`{"a": 1}` + "\n"))
		b.succeeds(t, webhook, raw)
	}
}

func TestWebhookOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	other := setup(t, func(b *testBundle) {
		b.Now, b.Secrets = noon, secrets{"TOKEN": password + "x", "EMPTY": "", "BLANK": " \n"}
	})
	for name, w := range signed("body", noon()) {
		other.fails(t, webhook, w, unexpected(), "not that of the body with the secret TOKEN")
		for _, empty := range []string{"EMPTY", "BLANK"} {
			w["secret"] = empty
			other.fails(t, webhook, w, invalid(), "is empty")
		}
		w["secret"], w["body"] = "TOKEN", "body "
		if name != "gitlab" { // which signs no body
			b.fails(t, webhook, w, unexpected(), "not that of the body")
		}
		w["headers"] = with{"X-Other": "x"}
		b.fails(t, webhook, w, unexpected(), "is missing")
	}
}

func TestWebhookReplayIsRefused(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	for at, says := range map[time.Duration]string{
		-5*time.Minute - time.Second: "5m1s ago, more than the tolerance of 5m0s",
		-24 * time.Hour:              "24h0m0s ago",
		61 * time.Second:             "1m1s in the future",
		1000 * time.Hour:             "in the future",
	} {
		all := signed("body", noon().Add(at))
		for _, name := range []string{"stripe", "slack", "hmac-time"} {
			b.fails(t, webhook, all[name], unexpected(), says)
		}
	}
	for _, at := range []time.Duration{-5 * time.Minute, time.Minute} {
		all := signed("body", noon().Add(at))
		for _, name := range []string{"stripe", "slack", "hmac-time"} {
			b.succeeds(t, webhook, all[name])
		}
	}
	short := signed("body", noon().Add(11*time.Second))["stripe"]
	short["tolerance"] = "10s"
	b.fails(t, webhook, short, unexpected(), "in the future")
}

// TestWebhookTimeIsSigned holds that a time which the sender did not sign does
// not count.
func TestWebhookTimeIsSigned(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	old, now := strconv.FormatInt(noon().Add(-time.Hour).Unix(), 10), strconv.FormatInt(noon().Unix(), 10)
	all := signed("body", noon().Add(-time.Hour))
	for _, name := range []string{"stripe", "slack", "hmac-time"} {
		headers, ok := all[name]["headers"].(with)
		require.True(t, ok)
		for k, v := range headers {
			headers[k] = strings.ReplaceAll(fmt.Sprint(v), old, now)
		}
		b.fails(t, webhook, all[name], unexpected(), "not that of the body")
	}
}

func TestWebhookOfStripe(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	now := strconv.FormatInt(noon().Unix(), 10)
	good := sign(now + ".body")
	stripe := func(header string) with {
		return with{"provider": "stripe", "secret": "TOKEN", "body": "body", "headers": with{"Stripe-Signature": header}}
	}
	for _, header := range []string{
		"t=" + now + ",v1=" + strings.Repeat("0", 64) + ",v1=" + good,
		"t=" + now + ",v1=zz,v1=" + good + ",v0=" + strings.Repeat("0", 64),
		"v1=" + good + ", t=" + now,
	} {
		b.succeeds(t, webhook, stripe(header))
	}
	for header, says := range map[string]string{
		"t=" + now + ",v0=" + good:                               "no signature v1=",
		"t=" + now:                                               "no signature v1=",
		"v1=" + good:                                             "no time t=",
		"t=" + now + ",t=" + now + ",v1=" + good:                 "two times",
		"t=-5,v1=" + good:                                        "seconds since 1970",
		"t=0,v1=" + good:                                         "seconds since 1970",
		"t=99999999999999999999,v1=" + good:                      "seconds since 1970",
		"t=" + now + "," + good:                                  "cannot be read",
		"t=" + now + strings.Repeat(",v1="+good, 17):             "too many signatures",
		"t=" + now + ",v1=" + good[:32]:                          "not that of the body",
		"t=" + now + ",v1=" + sign(now+".other"):                 "not that of the body",
		"t=0" + now + ",v1=" + good:                              "not that of the body",
		"t=" + now + ",v1=,v1=" + strings.Repeat("0", 64) + ",x": "cannot be read",
	} {
		b.fails(t, webhook, stripe(header), unexpected(), says)
	}
}

func TestWebhookOfAnotherForm(t *testing.T) {
	t.Parallel()
	b := webhookBundle(t)
	github := func(headers with) with {
		return with{"provider": "github", "secret": "TOKEN", "body": "body", "headers": headers}
	}
	b.fails(t, webhook, github(with{"X-Hub-Signature-256": sign("body")}), unexpected(), "does not begin with sha256=")
	b.fails(t, webhook, github(with{"X-Hub-Signature-256": "sha256=xyz"}), unexpected(), "is no hex")
	b.fails(t, webhook, github(with{"X-Hub-Signature-256": "sha256="}), unexpected(), "is no hex")
	b.fails(t, webhook, github(with{"X-Hub-Signature": "sha1=" + sign("body")[:40]}), unexpected(), "X-Hub-Signature-256 is missing")
	_, err := b.prepare(webhook, github(with{"X-A": "1", "x-a": "2"}))
	require.ErrorContains(t, err, "X-A: it is given twice")
}

// FuzzWebhook holds that no header passes without the secret, and that none
// makes it fail other than by refusing.
func FuzzWebhook(f *testing.F) {
	f.Add("stripe", "t=1800000000,v1=00,v1=11", "1800000000", "body")
	f.Add("slack", "v0=00", "1800000000", "body")
	f.Add("github", "sha256=00", "", "body")
	f.Add("gitlab", "token", "", "")
	f.Add("hmac", "00", "", "")
	b := setup(f, func(b *testBundle) { b.Now, b.Secrets = noon, unguessable{} })
	f.Fuzz(func(t *testing.T, provider, signature, timestamp, body string) {
		headers := with{
			"Stripe-Signature": signature, "X-Slack-Signature": signature, "X-Slack-Request-Timestamp": timestamp,
			"X-Hub-Signature-256": signature, "X-Gitlab-Token": signature, "X-Signature": signature,
		}
		job, err := b.prepare(webhook, with{"provider": provider, "secret": "TOKEN", "body": body, "headers": headers})
		if err != nil {
			t.Skip()
		}
		_, err = job.Run(t.Context(), task.Origin{})
		requireFailure(t, err, unexpected(), "webhook of")
	})
}

// unguessable is a secret that no fuzzer finds.
type unguessable struct{}

func (unguessable) Get(_ context.Context, name string) (secret.Value, error) {
	sum := sha256.Sum256([]byte(password))
	return secret.NewValue(name, hex.EncodeToString(sum[:])), nil
}

func (unguessable) Where(string) string { return "the test" }
