package api

import (
	"net/http"
	"slices"
	"strings"

	"go.temporal.io/sdk/converter"
	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

// CodecPath is below which payloads are encrypted and decrypted, as Temporal's UI
// and command line ask for it.
const CodecPath = "/api/v1/codec/"

// codecMost is how large a request may be: a page of a history, in base64.
const codecMost = 16 << 20

// CodecConfig is what a [Codec] is made of.
type CodecConfig struct {
	Codec converter.PayloadCodec
	// Tokens are asked of everybody. They are not those of [Config]: who may look
	// at payloads need not be allowed to run tasks, nor the other way round. Nil:
	// none are, which is for this machine alone.
	Tokens *Tokens
	// Origins are the web pages that may ask.
	Origins []string
	// Loopback says that only this machine reaches it.
	Loopback bool
	// Logger defaults to one that says nothing.
	Logger *zap.Logger
}

// Codec answers what Temporal calls a codec server. It is safe for concurrent use.
type Codec struct {
	cfg     CodecConfig
	log     *zap.Logger
	guard   *API // identifies who asks, with tokens of its own
	handler http.Handler
}

// NewCodec returns a codec server.
func NewCodec(cfg CodecConfig) *Codec {
	return &Codec{
		cfg: cfg, log: telemetry.OrNop(cfg.Logger), guard: New(Config{Tokens: cfg.Tokens, Logger: cfg.Logger}),
		handler: converter.NewPayloadCodecHTTPHandler(cfg.Codec),
	}
}

// ServeHTTP answers POST of encode and decode, and what browsers ask before.
func (c *Codec) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := c.admit(w, r); p != nil {
		c.guard.answer(w, p)
		return
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	who, p := c.guard.identify(r)
	if p != nil {
		if p.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="belay"`)
		}
		c.guard.answer(w, p)
		return
	}
	what := strings.TrimPrefix(r.URL.Path, CodecPath)
	if what != "encode" && what != "decode" {
		c.guard.answer(w, problemf(http.StatusNotFound, "not_found", "there is no %s", r.URL.Path))
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		c.guard.answer(w, problemf(http.StatusMethodNotAllowed, "method_not_allowed", "%s takes POST, not %s", r.URL.Path, r.Method))
		return
	}
	c.log.Info("payloads are asked for", zap.String("what", what), zap.String("by", who.sender), zap.String("namespace", r.Header.Get("X-Namespace")))
	w.Header().Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, codecMost)
	c.handler.ServeHTTP(w, r)
}

// admit lets browsers ask for the pages that are listed, and for no others.
func (c *Codec) admit(w http.ResponseWriter, r *http.Request) *Problem {
	if c.cfg.Loopback && !ofThisMachine(r.Host) {
		// A name that is bound anew to 127.0.0.1 stands in Host.
		return problemf(http.StatusForbidden, "forbidden", "this worker answers requests to 127.0.0.1 or localhost only, this one is to %.100q", r.Host)
	}
	w.Header().Set("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil // no browser, or one that asks for a page of the worker itself: there is none
	}
	if !slices.Contains(c.cfg.Origins, strings.ToLower(origin)) {
		return problemf(http.StatusForbidden, "forbidden", "codec_origins does not name the page that asks, %.100q", origin)
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Methods", http.MethodPost)
	h.Set("Access-Control-Allow-Headers", "Authorization, Authorization-Extras, Content-Type, X-Namespace")
	h.Set("Access-Control-Max-Age", "600")
	return nil
}
