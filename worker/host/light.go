package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/config"
	"belay.run/internal/executor"
	"belay.run/internal/outbound"
	"belay.run/internal/router"
	"belay.run/internal/task/types"
)

const (
	// limitsEvery is how often one looks whether the file of limits has changed.
	limitsEvery = 2 * time.Second
	// executorStop is how long tasks that run have to end when the worker stops.
	// Steps have had theirs before.
	executorStop = 5 * time.Second
	// lightBeat is how often a light step may ask whether it is cancelled.
	lightBeat = 500 * time.Millisecond
)

// openLight makes what runs light tasks, and what decides which steps are.
func (w *Worker) openLight() error {
	s := w.cfg.Settings
	var limits executor.Limits
	var err error
	if s.LightLimits != "" {
		if limits, err = executor.LoadLimits(s.LightLimits); err != nil {
			return &config.SettingError{Setting: "BELAY_LIGHT_LIMITS", Err: err}
		}
	}
	if w.deps.router, err = router.Load(s.LightRoutes); err != nil {
		return &config.SettingError{Setting: "BELAY_LIGHT_ROUTES", Err: err}
	}
	net := outbound.New(outbound.Config{Guard: outbound.Guard{Allow: s.LightAllow}, Concurrency: limits.Concurrency})
	w.onStop(func() error { net.Close(); return nil })
	registry := types.Builtin(types.Tools{Net: net, Secrets: w.deps.secrets, Files: s.LightFiles})
	open := func(limits executor.Limits, name string) (*executor.Executor, error) {
		cfg := executor.Config{Registry: registry, Limits: limits, Logger: w.log.Named(name)}
		if w.once.claims != nil {
			cfg.Claims = w.once.claims
		}
		e, err := executor.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("making the executor of light tasks: %w", err)
		}
		w.onStop(func() error { return closeExecutor(e) })
		return e, nil
	}
	if w.deps.executor, err = open(limits, "light"); err != nil {
		return err
	}
	// What is sent to the host takes no part in the limits of what is light.
	heavy := executor.Limits{
		Concurrency: s.MaxProcesses, Timeout: time.Hour, Target: executor.Share{InFlight: -1, Queue: -1}, Breaker: executor.Breaker{Off: true}, Delay: -1,
	}
	if w.deps.heavy, err = open(heavy, "heavy"); err != nil {
		return err
	}
	if s.LightLimits != "" {
		watch := &limitsWatch{path: s.LightLimits, set: func(l executor.Limits) error {
			if err := w.deps.executor.SetLimits(l); err != nil {
				return err
			}
			net.SetConcurrency(l.Concurrency)
			return nil
		}, log: w.log.Named("light")}
		watch.last, _ = watch.read() // it has just been read; a change shows later
		w.onStop(background(watch.run))
	}
	return nil
}

func closeExecutor(e *executor.Executor) error {
	ctx, cancel := context.WithTimeout(context.Background(), executorStop)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		return fmt.Errorf("ending light tasks: %w", err)
	}
	return nil
}

// newLight makes the activities of light steps.
func (w *Worker) newLight() *activities.Light {
	return activities.NewLight(activities.LightConfig{
		Claims: w.deps.claims, Executor: w.deps.executor, Heavy: w.deps.heavy, Secrets: w.deps.secrets, Logger: w.log.Named("light"),
	})
}

// limitsWatch reads the file of limits again when it has changed, or on SIGHUP. It
// goes by what is in it: files are also replaced, and links pointed elsewhere.
type limitsWatch struct {
	path string
	set  func(executor.Limits) error
	log  *zap.Logger
	last []byte
	gone bool
}

func (l *limitsWatch) run(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(limitsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			l.look(true)
		case <-tick.C:
			l.look(false)
		}
	}
}

// look sets the limits of the file where it has changed, or in any case. While it
// is bad, or gone, the old limits stay.
func (l *limitsWatch) look(always bool) {
	text, err := l.read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.gone && !always:
		return // it has been said
	case err != nil:
		l.gone = true
		l.log.Warn("could not read the limits of light tasks; the old ones stay", zap.Error(err))
		return
	case bytes.Equal(text, l.last) && !l.gone && !always:
		return
	}
	l.last, l.gone = text, false
	limits, err := executor.LoadLimits(l.path)
	if err == nil {
		err = l.set(limits)
	}
	if err != nil {
		l.log.Error("the limits of light tasks are not valid; the old ones stay", zap.Error(err))
		return
	}
	l.log.Info("set the limits of light tasks", zap.String("file", l.path))
}

func (l *limitsWatch) read() ([]byte, error) { return os.ReadFile(l.path) }
