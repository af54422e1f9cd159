package host

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/batch/control"
	"belay.run/internal/certs"
	"belay.run/internal/config"
	"belay.run/internal/secret"
	"belay.run/worker/api"
)

// Bounds of the HTTP server. Where the API takes longer it says so itself.
const (
	httpReadTimeout  = 10 * time.Second
	httpWriteTimeout = 10 * time.Second
	httpIdleTimeout  = time.Minute
	httpHeaderBytes  = 16 << 10
	httpStopTimeout  = 2 * time.Second
)

// listen opens the worker's HTTP address; nil where it is off. Where there is a
// certificate it speaks TLS.
func (w *Worker) listen(ctx context.Context) (net.Listener, error) {
	s := w.cfg.Settings
	if s.HTTPAddress == config.HTTPOff {
		return nil, nil //nolint:nilnil // off is a way to run
	}
	if s.HTTPTLS.Cert == "" {
		return listen(ctx, s.HTTPAddress)
	}
	source, err := certs.Open(s.HTTPTLS, w.log)
	if err != nil {
		return nil, &config.SettingError{Setting: "BELAY_HTTP_TLS_CERT", Err: err}
	}
	l, err := listen(ctx, s.HTTPAddress)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(l, source.Server()), nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("http_address %s is in use, by another worker perhaps: "+
			"choose another (--http-address, BELAY_HTTP_ADDRESS), or off: %w", address, err)
	case err != nil:
		return nil, fmt.Errorf("listening on http_address %s: %w", address, err)
	}
	return l, nil
}

// openAPI makes the API that is served on l; none where it is off. Where others
// than this machine reach it, it does not go without tokens.
func (w *Worker) openAPI(l net.Listener, own secret.Provider) error {
	s := w.cfg.Settings
	addr, isTCP := l.Addr().(*net.TCPAddr)
	cfg := api.Config{Loopback: isTCP && addr.IP.IsLoopback(), Crowded: w.crowd.crowded, Logger: w.log.Named("api")}
	switch {
	case s.HTTPAPIOff:
		return nil
	case len(s.HTTPTokens) == 0 && !cfg.Loopback:
		return &config.SettingError{Setting: "BELAY_HTTP_TOKENS", Err: fmt.Errorf(
			"http_address %s can be reached from other machines, and without tokens whoever reaches it could run tasks: "+
				"name the secrets of tenants (http_tokens: TENANT=SECRET), leave out the API (http_api: off), or listen on 127.0.0.1", s.HTTPAddress)}
	case len(s.HTTPTokens) > 0:
		tokens, err := api.ReadTokens(context.Background(), own, s.HTTPTokens, cfg.Logger)
		if err != nil {
			return &config.SettingError{Setting: "BELAY_HTTP_TOKENS", Err: err}
		}
		w.onStop(background(tokens.Keep))
		cfg.Tokens = tokens
	}
	w.api = api.New(cfg)
	return nil
}

// openCodec makes what encrypts and decrypts payloads for Temporal's UI and command
// line; none where nobody may ask for it.
func (w *Worker) openCodec(l net.Listener, own secret.Provider) error {
	s := w.cfg.Settings
	if !w.codec.Seals() || len(s.CodecTokens)+len(s.CodecOrigins) == 0 {
		return nil
	}
	addr, isTCP := l.Addr().(*net.TCPAddr)
	cfg := api.CodecConfig{Codec: w.codec, Origins: s.CodecOrigins, Loopback: isTCP && addr.IP.IsLoopback(), Logger: w.log.Named("codec")}
	if len(s.CodecTokens) == 0 && !cfg.Loopback {
		return &config.SettingError{Setting: "BELAY_CODEC_TOKENS", Err: fmt.Errorf(
			"http_address %s can be reached from other machines, and without tokens whoever reaches it could decrypt payloads: name the secrets of tokens", s.HTTPAddress)}
	}
	if len(s.CodecTokens) > 0 {
		listed := make([]config.HTTPToken, len(s.CodecTokens))
		for i, name := range s.CodecTokens {
			listed[i] = config.HTTPToken{Tenant: config.AnyTenant, Secret: name}
		}
		tokens, err := api.ReadTokens(context.Background(), own, listed, cfg.Logger)
		if err != nil {
			return &config.SettingError{Setting: "BELAY_CODEC_TOKENS", Err: err}
		}
		w.onStop(background(tokens.Keep))
		cfg.Tokens = tokens
	}
	w.codecAPI = api.NewCodec(cfg)
	return nil
}

// openServices gives the API what it hands requests on to.
func (w *Worker) openServices() {
	if w.api == nil {
		return
	}
	t := w.deps.temporal
	s := api.Services{
		Executor: w.deps.executor, Types: w.deps.types, Store: w.deps.store,
		Batches: control.New(t.Client, t.Namespace, ""), Secrets: w.deps.vault,
	}
	if w.once.audit != nil {
		s.Audit = w.once.audit
	}
	w.api.Open(s)
	w.onStop(func() error { w.api.Close(); return nil })
}

// serve answers on l until the returned function is called.
func (w *Worker) serve(l net.Listener) (stop func() error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", w.healthz)
	mux.HandleFunc("GET /readyz", w.readyz)
	if w.api == nil {
		mux.Handle("GET /metrics", w.metrics.Handler(w.log))
	} else {
		mux.Handle("GET /metrics", w.api.Guard(w.metrics.Handler(w.log)))
		mux.Handle("/api/", w.api)
	}
	if w.codecAPI != nil {
		mux.Handle(api.CodecPath, w.codecAPI)
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: httpReadTimeout,
		ReadTimeout:       httpReadTimeout,
		WriteTimeout:      httpWriteTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpHeaderBytes,
		ErrorLog:          zap.NewStdLog(w.log),
		ConnState:         w.crowd.count,
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(lateListener{l}) }()
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), httpStopTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close() // a client that does not let go is cut off
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving HTTP: %w", err)
		}
		return nil
	}
}

// healthz says that the process lives, whatever it waits for.
func (w *Worker) healthz(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	// A client that has gone hears nothing.
	_, _ = io.WriteString(rw, "ok\n")
}

// readyz says whether the worker takes stages, and else why not.
func (w *Worker) readyz(rw http.ResponseWriter, _ *http.Request) {
	h := w.Health()
	body, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Cache-Control", "no-store")
	if h.Status != StatusReady {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = rw.Write(append(body, '\n'))
}
