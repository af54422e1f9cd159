// Package doctor looks at a whole installation, and says of each thing that is
// wrong what to do about it.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"belay.run/internal/store"
	"belay.run/internal/vitals"
)

const (
	// withinDefault bounds the whole.
	withinDefault = 10 * time.Second
	// lastWord is how long a check may take to say that its time is over.
	lastWord = 500 * time.Millisecond
)

// Check is what was looked at and what was found.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Found is how things are, Remedy what to do, also where it is advice only.
	Found  string `json:"found"`
	Remedy string `json:"remedy"`
	// Unreachable: it is a server that gives no answer.
	Unreachable bool `json:"-"`
}

// Temporal is a connection that is looked at.
type Temporal struct {
	Client    client.Client
	Namespace string
	// Address is for people; it may be empty.
	Address string
}

// Config says where things are. Each function is called once, and may fail.
type Config struct {
	Temporal func(context.Context) (*Temporal, error)
	// Redis is nil without an error where none is configured; RedisLogs also where
	// it is the same.
	Redis     func() (redis.UniversalClient, error)
	RedisLogs func() (redis.UniversalClient, error)
	Store     func(context.Context) (store.Store, error)
	// Version is that of the program that asks.
	Version string
	// Now is the clock of this machine. Defaults to time.Now.
	Now func() time.Time
	// Within bounds the whole. Defaults to 10 seconds.
	Within time.Duration
}

// doctor asks each thing once that several checks need.
type doctor struct {
	cfg Config

	temporal func() (*Temporal, error)
	redis    func() (redis.UniversalClient, error)
	infos    func() ([]info, error)
	store    func() (store.Store, error)
	reports  func() ([]vitals.Report, error)
	queues   func() ([]queue, error)
}

// Run makes all checks at the same time, and returns them in an order that does
// not change. What gives no answer in time has failed.
func Run(ctx context.Context, cfg Config) []Check {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Within == 0 {
		cfg.Within = withinDefault
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Within)
	defer cancel()
	exams := newDoctor(ctx, cfg).exams()
	found := make([]chan Check, len(exams))
	for i, e := range exams {
		found[i] = make(chan Check, 1) // who comes too late finds nobody
		go func() { found[i] <- e.look(ctx) }()
	}
	over, end := context.WithTimeout(context.WithoutCancel(ctx), cfg.Within+lastWord)
	defer end()
	out := make([]Check, len(exams))
	for i, e := range exams {
		out[i] = await(over, found[i], cfg.Within)
		out[i].Name = e.name
	}
	return out
}

// await is what comes of a check, as long as there is time. One that has an
// answer keeps it also when the time is over.
func await(over context.Context, found <-chan Check, within time.Duration) Check {
	select {
	case c := <-found:
		return c
	default:
	}
	select {
	case c := <-found:
		return c
	case <-over.Done():
		return bad("look at what it depends on: a file system that hangs, or a network that drops packets", "no answer within %s", within)
	}
}

// exam is a check to be made.
type exam struct {
	name string
	look func(context.Context) Check
}

func (d *doctor) exams() []exam {
	return []exam{
		{"temporal", d.checkTemporal},
		{"namespace", d.checkNamespace},
		{"search_attributes", d.checkAttributes},
		{"workers", d.checkWorkers},
		{"worker_versions", d.checkVersions},
		{"worker_versioning", d.checkVersioning},
		{"janitor", d.checkJanitor},
		{"redis", d.checkRedis},
		{"redis_persistence", d.checkPersistence},
		{"redis_eviction", d.checkEviction},
		{"redis_scripts", d.checkScripts},
		{"redis_logs", d.checkRedisLogs},
		{"clock", d.checkClock},
		{"store", d.checkStore},
		{"store_shared", d.checkShared},
		{"containers", d.checkContainers},
		{"disk", d.checkDisk},
		{"limits", d.checkLimits},
	}
}

func newDoctor(ctx context.Context, cfg Config) *doctor {
	d := &doctor{cfg: cfg}
	d.temporal = sync.OnceValues(func() (*Temporal, error) { return cfg.Temporal(ctx) })
	d.redis = sync.OnceValues(cfg.Redis)
	d.infos = sync.OnceValues(func() ([]info, error) { return d.readInfos(ctx) })
	d.store = sync.OnceValues(func() (store.Store, error) { return cfg.Store(ctx) })
	d.reports = sync.OnceValues(func() ([]vitals.Report, error) { return d.readReports(ctx) })
	d.queues = sync.OnceValues(func() ([]queue, error) { return d.readQueues(ctx) })
	return d
}

// readReports reads what workers report. A store that hangs is given up early:
// those who ask have other things to say too.
func (d *doctor) readReports(ctx context.Context) (reports []vitals.Report, err error) {
	done := make(chan struct{})
	var found []vitals.Report
	var failed error
	go func() {
		defer close(done)
		st, err := d.store()
		if err != nil {
			failed = err
			return
		}
		found, failed = vitals.Read(ctx, st, d.cfg.Now())
	}()
	within := d.cfg.Within / 2
	select {
	case <-done:
		return found, failed
	case <-time.After(within):
		return nil, fmt.Errorf("the store gives no answer within %s", within)
	}
}

func good(format string, args ...any) Check {
	return Check{OK: true, Found: fmt.Sprintf(format, args...)}
}

// advised is good, with something that one may want to know.
func advised(advice, format string, args ...any) Check {
	return Check{OK: true, Found: fmt.Sprintf(format, args...), Remedy: advice}
}

func bad(remedy, format string, args ...any) Check {
	return Check{Found: fmt.Sprintf(format, args...), Remedy: remedy}
}

// errNotAsked stands for what could not be asked since it is away.
var errNotAsked = errors.New("not asked")

// service is the frontend of Temporal. Another check says why there is none.
func (d *doctor) service() (workflowservice.WorkflowServiceClient, string, error) {
	t, err := d.temporal()
	if err != nil {
		return nil, "", fmt.Errorf("%w: Temporal cannot be used", errNotAsked)
	}
	return t.Client.WorkflowService(), t.Namespace, nil
}

// unknown is the check of something that could not be asked.
func unknown(err error, remedy string) Check {
	if errors.Is(err, errNotAsked) {
		remedy = "see the check that says why"
	}
	return bad(remedy, "%s", oneLine(err))
}
