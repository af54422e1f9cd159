package host

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"belay.run/activities"
	"belay.run/internal/config"
	"belay.run/internal/executor"
	"belay.run/internal/outbound"
	"belay.run/internal/router"
	"belay.run/internal/secret"
	"belay.run/internal/task/types"
)

const (
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
	w.deps.vault = secret.NewVault(w.deps.secrets, s.LightSecrets...)
	w.deps.types = types.Builtin(types.Tools{Net: net, Secrets: w.deps.vault, Files: s.LightFiles})
	open := func(limits executor.Limits, name string, observer executor.Observer) (*executor.Executor, error) {
		cfg := executor.Config{Registry: w.deps.types, Limits: limits, Observer: observer, Logger: w.log.Named(name)}
		if w.cfg.Tracing.On() {
			cfg.Tracer = w.cfg.Tracing.Tracer()
		}
		if w.once.claims != nil {
			cfg.Claims, cfg.Audit = w.once.claims, w.once.audit
		}
		e, err := executor.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("making the executor of light tasks: %w", err)
		}
		w.onStop(func() error { return closeExecutor(e) })
		return e, nil
	}
	if w.deps.executor, err = open(limits, "light", w.metrics.Light()); err != nil {
		return &config.SettingError{Setting: "BELAY_LIGHT_LIMITS", Err: err} // there is nothing else to be wrong
	}
	// What is sent to the host takes no part in the limits of what is light.
	heavy := executor.Limits{
		Concurrency: s.MaxProcesses, Timeout: time.Hour, Target: executor.Share{InFlight: -1, Queue: -1}, Breaker: executor.Breaker{Off: true}, Delay: -1,
	}
	if w.deps.heavy, err = open(heavy, "heavy", nil); err != nil {
		return err
	}
	w.crowd.leave(w.deps.executor)
	w.metrics.WatchExecutor(w.deps.executor.Status)
	if s.LightLimits != "" {
		w.onStop(background(func(ctx context.Context) {
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			executor.Watch(ctx, s.LightLimits, hup, func(l executor.Limits) error {
				if err := w.deps.executor.SetLimits(l); err != nil {
					return err
				}
				net.SetConcurrency(l.Concurrency)
				w.crowd.leave(w.deps.executor)
				return nil
			}, w.log.Named("light"))
		}))
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
