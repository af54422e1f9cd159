package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/internal/config"
	"belay.run/internal/redistest"
	"belay.run/internal/store"
	"belay.run/internal/vitals"
	"belay.run/starter/doctor"
)

const day = 24 * time.Hour

// bundle is an installation that is well, until a test changes it.
type bundle struct {
	temporal *temporal
	cfg      doctor.Config
	store    store.Store
	report   vitals.Report
}

func setup(t *testing.T) *bundle {
	t.Helper()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	b := &bundle{temporal: wellTemporal(), store: st, report: vitals.Report{
		Host: "h1", Machine: "box", Version: "v1", At: time.Now(), OpenFiles: 1 << 20, Engine: "unix:///run/docker.sock",
		Disks: []vitals.Disk{{What: "store", Path: "/s", Bytes: 100 << 30, Free: 50 << 30, Files: 1000, FreeFiles: 900}},
	}}
	b.cfg = doctor.Config{
		Temporal: func(context.Context) (*doctor.Temporal, error) {
			return &doctor.Temporal{Client: b.temporal, Namespace: "default", Address: "temporal:7233"}, nil
		},
		Redis:   func() (redis.UniversalClient, error) { return nil, nil }, //nolint:nilnil // none is configured
		Store:   func(context.Context) (store.Store, error) { return b.store, nil },
		Version: "v1",
		Within:  time.Minute,
	}
	return b
}

func (b *bundle) withRedis(t *testing.T, args ...string) redis.UniversalClient {
	t.Helper()
	rdb := redistest.Start(t, append([]string{"--appendonly", "yes"}, args...)...).Client(t)
	b.cfg.Redis = func() (redis.UniversalClient, error) { return rdb, nil }
	return rdb
}

// run makes all checks, and returns them by name.
func (b *bundle) run(t *testing.T) map[string]doctor.Check {
	t.Helper()
	if b.report.Host != "" {
		require.NoError(t, vitals.Write(t.Context(), b.store, &b.report))
	}
	out := map[string]doctor.Check{}
	for _, c := range doctor.Run(t.Context(), b.cfg) {
		out[c.Name] = c
	}
	require.Len(t, out, 18)
	return out
}

// wrong makes all checks and returns the one of that name, the only one that is
// to find something.
func (b *bundle) wrong(t *testing.T, name string) doctor.Check {
	t.Helper()
	checks := b.run(t)
	for _, c := range checks {
		if c.Name != name {
			require.True(t, c.OK, "%+v", c)
		}
	}
	require.False(t, checks[name].OK, "%+v", checks[name])
	require.NotEmpty(t, checks[name].Remedy)
	return checks[name]
}

func TestAllIsWell(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withRedis(t)
	for _, c := range b.run(t) {
		require.True(t, c.OK, "%+v", c)
		require.NotEmpty(t, c.Found, c.Name)
	}
	require.Contains(t, b.run(t)["worker_versioning"].Found, "off")

	keys := 0
	for info, err := range b.store.List(t.Context(), "doctor") {
		require.NoError(t, err)
		keys++
		t.Log(info.Key)
	}
	require.Zero(t, keys, "nothing is left of the look")
}

func TestRedisIsOptional(t *testing.T) {
	t.Parallel()
	checks := setup(t).run(t)
	for _, name := range []string{"redis", "redis_persistence", "redis_eviction", "redis_scripts", "redis_logs"} {
		require.True(t, checks[name].OK, name)
	}
	require.Contains(t, checks["redis"].Remedy, "REDIS_URL")
}

func TestWhatIsWrongWithTemporal(t *testing.T) {
	t.Parallel()
	seconds := func(n int) *timestamppb.Timestamp {
		return timestamppb.New(time.Now().Add(-time.Duration(n) * time.Second))
	}
	for _, tc := range []struct {
		name, check, found, remedy string
		breaks                     func(b *bundle)
	}{
		{"AnAttributeIsMissing", "search_attributes", "BelayStatus", "--name BelayStatus", func(b *bundle) { delete(b.temporal.attributes, "BelayStatus") }},
		{"AnAttributeHasAnotherType", "search_attributes", "Text", "Keyword", func(b *bundle) {
			b.temporal.attributes["BelayTenant"] = enumspb.INDEXED_VALUE_TYPE_TEXT
		}},
		{"AnAttributeIsMissingAndNobodyMayListThem", "search_attributes", "BelayStatus", "--name BelayStatus", func(b *bundle) {
			b.temporal.noOperator = true
			delete(b.temporal.attributes, "BelayStatus")
		}},
		{"NobodyTakesStages", "workers", "belay-steps", "start a worker", func(b *bundle) { delete(b.temporal.pollers, "belay-steps") }},
		{"AWorkerHasStopped", "workers", "belay-light", "start a worker", func(b *bundle) {
			b.temporal.pollers["belay-light"] = []*taskqueuepb.PollerInfo{{Identity: "belay/h1@box", LastAccessTime: seconds(300)}}
		}},
		{"ThereIsNoJanitor", "janitor", "no schedule", "BELAY_JANITOR", func(b *bundle) { b.temporal.schedule = nil }},
		{"TheJanitorIsPaused", "janitor", "for the night", "--unpause", func(b *bundle) { b.temporal.setSchedule(time.Now(), true) }},
		{"TheJanitorHangs", "janitor", "10m", "hangs", func(b *bundle) { b.temporal.setSchedule(time.Now().Add(-10*time.Minute), false) }},
		{"ItsClockIsWrong", "clock", "Temporal is 1m", "NTP", func(b *bundle) { b.temporal.ahead = time.Minute }},
		{"AnotherStore", "store_shared", "h2", "BELAY_STORE", func(b *bundle) {
			b.temporal.pollers["belay-workflows"] = append(b.temporal.pollers["belay-workflows"], &taskqueuepb.PollerInfo{Identity: "belay/h2@other", LastAccessTime: seconds(1)})
		}},
		{"TheEngineIsAway", "containers", "refused", "BELAY_CONTAINER_ENGINE", func(b *bundle) { b.report.EngineError = "connection refused" }},
		{"ADiskIsFull", "disk", "h1@box has 5%", "retention_logs", func(b *bundle) { b.report.Disks[0].Free = 5 << 30 }},
		{"NoInodesAreLeft", "disk", "inodes", "retention_logs", func(b *bundle) { b.report.Disks[0].FreeFiles = 10 }},
		{"FewOpenFiles", "limits", "1024", "LimitNOFILE", func(b *bundle) { b.report.OpenFiles = 1024 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tc.breaks(b)
			c := b.wrong(t, tc.check)
			require.Contains(t, c.Found, tc.found)
			require.Contains(t, c.Remedy, tc.remedy)
		})
	}
}

func TestWhatIsWorthAWord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.retention = day
	b.temporal.pollers["belay-steps"] = nil
	b.report.OnlyLabels, b.report.NoCgroup, b.report.Engine, b.report.Version = true, "read-only", "", "v2"
	checks := b.run(t)
	for name, want := range map[string]string{
		"namespace": "24h", "limits": "read-only", "containers": "no engine", "worker_versions": "v2 (1)", "workers": "belay-workflows",
	} {
		require.True(t, checks[name].OK, "%+v", checks[name])
		require.Contains(t, checks[name].Found, want)
	}
}

func TestWhatIsWrongWithRedis(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, check, found string
		args               []string
		breaks             func(t *testing.T, rdb redis.UniversalClient)
	}{
		{"ItForgets", "redis_persistence", "off", []string{"--appendonly", "no"}, nil},
		{"ItEvicts", "redis_eviction", "allkeys-lru", []string{"--maxmemory-policy", "allkeys-lru"}, nil},
		{"ItRunsNoScripts", "redis_scripts", "NOPERM", nil, func(t *testing.T, rdb redis.UniversalClient) {
			t.Helper()
			require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-eval", "-evalsha").Err())
		}},
		{"ItSaysNothingOfItself", "redis", "NOPERM", nil, func(t *testing.T, rdb redis.UniversalClient) {
			t.Helper()
			require.NoError(t, rdb.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			rdb := b.withRedis(t, tc.args...)
			if tc.breaks != nil {
				tc.breaks(t, rdb)
			}
			c := b.run(t)[tc.check]
			require.False(t, c.OK)
			require.Contains(t, c.Found, tc.found)
			require.NotEmpty(t, c.Remedy)
			require.False(t, c.Unreachable)
		})
	}

	t.Run("ItIsAway", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		server := redistest.Start(t)
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		server.Stop(t)
		b.cfg.Redis = func() (redis.UniversalClient, error) { return rdb, nil }
		checks := b.run(t)
		require.True(t, checks["redis"].Unreachable)
		require.False(t, checks["redis_eviction"].OK)
		require.Contains(t, checks["redis_eviction"].Found, "not asked")
		require.True(t, checks["temporal"].OK)
	})
}

func TestTemporalIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withRedis(t)
	away := &config.UnreachableError{Service: "Temporal", Address: "temporal:7233", Check: "is it running?", Err: errors.New("refused")}
	b.cfg.Temporal = func(context.Context) (*doctor.Temporal, error) { return nil, away }
	checks := b.run(t)
	require.Equal(t, doctor.Check{Name: "temporal", Found: "temporal:7233: refused", Remedy: "is it running?", Unreachable: true}, checks["temporal"])
	for _, name := range []string{"namespace", "search_attributes", "workers", "worker_versioning", "janitor", "store_shared"} {
		require.False(t, checks[name].OK, name)
		require.Contains(t, checks[name].Found, "not asked", name)
	}
	for _, name := range []string{"redis", "redis_persistence", "redis_eviction", "redis_scripts", "store", "disk", "limits"} {
		require.True(t, checks[name].OK, "%+v", checks[name])
	}

	away.Err = serviceerror.NewNamespaceNotFound("nobody")
	checks = b.run(t)
	require.True(t, checks["temporal"].OK)
	require.False(t, checks["namespace"].OK)
	require.Contains(t, checks["namespace"].Remedy, "TEMPORAL_NAMESPACE")
}

func TestTheStoreCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	var err error
	b.store, err = store.OpenLate(t.Context(), "file://"+filepath.Join(file, "store"), nil)
	b.cfg.Store = func(context.Context) (store.Store, error) { return b.store, err }
	b.report = vitals.Report{}
	checks := b.run(t)
	require.False(t, checks["store"].OK)
	require.Contains(t, checks["store"].Remedy, "BELAY_STORE")
	require.False(t, checks["disk"].OK, "nobody reports there")
}

// TestWhatHangsIsLeft: a check that never returns holds up no other.
func TestWhatHangsIsLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	b.report = vitals.Report{}
	b.cfg.Store = func(context.Context) (store.Store, error) {
		<-hangs
		return nil, errors.New("late")
	}
	b.cfg.Within = 2 * time.Second
	checks := b.run(t)
	for _, name := range []string{"store", "disk", "limits", "containers"} {
		require.False(t, checks[name].OK, name)
		require.Contains(t, checks[name].Found, "no answer", name)
	}
	require.True(t, checks["temporal"].OK)
	require.True(t, checks["search_attributes"].OK)
	require.True(t, checks["workers"].OK)
	require.True(t, checks["clock"].OK)
}
