package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/cancels"
	"belay.run/internal/config"
	"belay.run/internal/container"
	"belay.run/internal/executor"
	"belay.run/internal/logs"
	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/retention"
	"belay.run/internal/router"
	"belay.run/internal/secret"
	"belay.run/internal/store"
	"belay.run/internal/task"
	"belay.run/internal/telemetry"
)

const (
	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
	pingWithin = 3 * time.Second

	// sweepWithin bounds the end of what an earlier worker left running: the
	// grace period of most steps, and more.
	sweepWithin = 30 * time.Second
)

// deps are what activities are made of.
type deps struct {
	temporal  *config.Temporal
	redis     redis.UniversalClient
	redisLogs redis.UniversalClient
	ledger    *resource.Ledger // nil without a Redis
	cancels   *cancels.Cancels // nil without a Redis
	store     store.Store
	logs      *logs.Logs
	retention *retention.Sweeper
	secrets   secret.Provider
	vault     *secret.Vault // of the light tasks
	claims    *activities.Claims
	resources *activities.Resources
	processes *proc.Host
	// executor runs light tasks, heavy what the router sends to this host.
	executor, heavy *executor.Executor
	types           *task.Registry
	router          *router.Router
	// containers is nil where this machine has no engine.
	containers *container.Host
}

// Start waits for the services that are needed, ends and removes what an
// earlier worker left here, and takes work. It returns once the worker is
// ready. After an error, or when ctx ends while it waits, call Stop.
func (w *Worker) Start(ctx context.Context) error {
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.openProcesses(ctx); err != nil {
		return err
	}
	if err := w.openContainers(ctx); err != nil {
		return err
	}
	if err := w.openOnce(); err != nil { //nolint:contextcheck // what it starts goes on until Stop
		return err
	}
	w.deps.retention = w.newRetention()
	w.deps.claims = w.newClaims()
	if err := w.openLight(); err != nil { //nolint:contextcheck // what it starts goes on until Stop
		return err
	}
	environ := w.cfg.Settings.StepEnviron(os.Environ())
	resources, err := w.newResources(ctx, environ)
	if err != nil {
		return err
	}
	w.deps.resources = resources
	w.stages = newStages(w)
	if err := w.openQueues(); err != nil { //nolint:contextcheck // what it starts goes on until Stop
		return err
	}
	w.openServices()
	w.state.set(StatusReady)
	w.onStop(background(w.maintain))      //nolint:contextcheck // it goes on until Stop
	w.onStop(background(w.tendJanitor))   //nolint:contextcheck // as above
	w.onStop(background(w.tendRetention)) //nolint:contextcheck // as above
	w.onStop(background(w.tendVitals))    //nolint:contextcheck // as above
	w.log.Info("ready", zap.String("host", w.ID()), zap.String("queue", w.Queue()),
		zap.Strings("labels", w.cfg.Settings.Labels), zap.Int("max_processes", w.cfg.Settings.MaxProcesses),
		zap.String("store", w.deps.store.String()), zap.Bool("redis", w.deps.redis != nil))
	return nil
}

// connect opens whatever was not given, waiting for what is not there yet.
func (w *Worker) connect(ctx context.Context) error {
	if err := w.connectTemporal(ctx); err != nil {
		return err
	}
	if err := w.connectRedis(ctx); err != nil {
		return err
	}
	w.deps.ledger = resource.NewLedger(w.deps.redis).Keep(w.cfg.Settings.Retention.Records)
	w.deps.cancels = cancels.New(w.deps.redis)
	w.deps.store = w.cfg.Store
	if w.deps.store == nil {
		st, err := store.Open(ctx, w.cfg.Settings.Store, w.deps.redis)
		if err != nil {
			if _, wrong := errors.AsType[*store.LocationError](err); wrong {
				return &config.SettingError{Setting: "BELAY_STORE", Err: err}
			}
			return err
		}
		w.deps.store = st
		w.onStop(st.Close)
	}
	w.deps.logs = logs.New(w.deps.store, w.deps.redisLogs)
	w.onStop(func() error { w.deps.logs.Close(); return nil })
	return nil
}

// openProcesses takes charge of the processes of steps, and ends those that an
// earlier worker of this host left when it was killed.
func (w *Worker) openProcesses(ctx context.Context) error {
	p, err := proc.New(proc.Options{Log: w.log.Named("proc"), StateDir: w.host.Dir()})
	if err != nil {
		return fmt.Errorf("preparing to run processes: %w", err)
	}
	w.deps.processes = p
	w.onStop(p.Close)
	if _, why := p.Cgroup(); why != "" {
		w.log.Warn("steps run without a cgroup: a process that leaves its step may outlive a killed worker", zap.String("why", why))
	}
	sweepCtx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	found, err := p.Sweep(sweepCtx, nil)
	if err != nil {
		w.log.Warn("could not end all processes that an earlier worker left; attempts end those of their own", zap.Error(err))
	}
	if found > 0 {
		w.log.Info("ended what an earlier worker left", zap.Int("steps", found))
	}
	return nil
}

func (w *Worker) connectTemporal(ctx context.Context) error {
	w.deps.temporal = w.cfg.Temporal
	if w.deps.temporal != nil {
		return nil
	}
	measured, err := w.metrics.Temporal(w.log)
	if err != nil {
		return err
	}
	t, err := config.DialTemporal(ctx, config.TemporalOptions{
		Environ:         w.cfg.environ,
		Logger:          w.sdkLog(),
		Metrics:         measured,
		Identity:        w.identity,
		Codec:           w.codec,
		APIKeyFile:      w.cfg.Settings.TemporalAPIKeyFile,
		WorkerHeartbeat: activities.WorkerHeartbeat,
		Waiting:         func(err *config.UnreachableError, next time.Duration) { w.waiting(err, next) },
	})
	if err != nil {
		return err
	}
	w.deps.temporal = t
	w.onStop(func() error { t.Close(); return nil })
	w.answers("Temporal")
	return nil
}

// sdkLog is the log of Temporal's SDK. It has much to say about starting and
// stopping, which is for those who look for a reason.
func (w *Worker) sdkLog() *zap.Logger {
	return telemetry.Quiet(w.log.Named("temporal"))
}

func (w *Worker) connectRedis(ctx context.Context) error {
	var err error
	s := w.cfg.Settings
	if w.deps.redis, err = w.openRedis(ctx, w.cfg.Redis, s.RedisURL); err != nil {
		return err
	}
	if w.cfg.RedisLogs == nil && s.RedisLogsURL == s.RedisURL {
		w.deps.redisLogs = w.deps.redis
		return nil
	}
	w.deps.redisLogs, err = w.openRedis(ctx, w.cfg.RedisLogs, s.RedisLogsURL)
	return err
}

// openRedis returns the client that was given, or one for the URL once it
// answers.
func (w *Worker) openRedis(ctx context.Context, given redis.UniversalClient, url string) (redis.UniversalClient, error) {
	if given != nil {
		return given, nil
	}
	c, err := config.NewRedis(url)
	if err != nil || c == nil {
		return nil, err
	}
	w.onStop(c.Close)
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		err := ping(ctx, c, url)
		if err == nil {
			w.answers("Redis")
			return c, nil
		}
		w.waiting(err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func ping(ctx context.Context, c redis.UniversalClient, url string) *config.UnreachableError {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	var unreachable *config.UnreachableError
	if err := config.PingRedis(ctx, c, url); errors.As(err, &unreachable) {
		return unreachable
	}
	return nil
}

// waiting says what is waited for, once for each reason.
func (w *Worker) waiting(err *config.UnreachableError, next time.Duration) {
	if w.state.silent(err) {
		w.log.Warn("waiting for "+err.Service, zap.String("address", err.Address), zap.Error(err.Err),
			zap.String("check", err.Check), zap.Duration("next_try", next))
	}
}

func (w *Worker) answers(service string) {
	if w.state.answers(service) {
		w.log.Info(service + " answers")
	}
}
