package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/dev/chaos"
	"belay.run/dev/e2e"
	"belay.run/internal/redistest"
	"belay.run/internal/testkit/engine"
	"belay.run/internal/testkit/need"
)

// storm is an environment of which every part can be taken away.
type storm struct {
	env   *e2e.Env
	redis *redistest.Server
	rdb   redis.UniversalClient
	hosts []*stormHost
	// engine is nil where no run has a container.
	engine *engine.Engine
	// dir is where runs leave traces; providers and scripts write there.
	dir, provider, target string
	// disks are small ones that can be filled; none where that is not permitted.
	disks []*stormDisk
	// late says that an owner may have lost its lock without knowing, twice that
	// one may have lost its host, and a step may have run beside its successor.
	late, twice bool
	// supervisors are those that were ever stopped.
	supervisors []int
}

// stormHost is a worker behind links that can be cut.
type stormHost struct {
	dir string
	// link leads to Temporal, redis to Redis.
	link, redis *stormLink
	worker      *e2e.Worker
	// stopped are the worker, and with it its supervisors, that were stopped, and
	// not killed since.
	stopped []int
}

type stormLink struct {
	*chaos.Proxy

	cut bool
}

// stormDisk is a small disk.
type stormDisk struct {
	dir string
	// empty undoes that it is full; nil where it is not.
	empty func()
}

func newStorm(t *testing.T, eng *engine.Engine) *storm {
	t.Helper()
	need.Program(t, "redis-server", "apt-get install redis-server")
	s := &storm{dir: t.TempDir(), engine: eng}
	s.redis = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s.rdb = s.redis.Client(t)
	data := t.TempDir()
	s.addDisk(t, filepath.Join(data, "store"))
	s.env = e2e.Start(t, e2e.Options{RedisURL: s.redis.URL, Data: data, NoWorker: true})
	s.writePrograms(t)
	for range 2 {
		h := &stormHost{dir: filepath.Join(t.TempDir(), "state"), link: newLink(t, s.env.Temporal.Address()), redis: newLink(t, s.redis.Addr)}
		s.addDisk(t, h.dir)
		s.hosts = append(s.hosts, h)
		s.startWorker(t, h)
	}
	return s
}

// addDisk makes a directory on a small disk of its own, where that is permitted.
func (s *storm) addDisk(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Mkdir(dir, 0o700))
	if err := mountDisk(t, dir); err != nil {
		t.Logf("SKIP: no disk will be full, for want of the right to mount one: %v", err)
		return
	}
	s.disks = append(s.disks, &stormDisk{dir: dir})
}

func newLink(t *testing.T, upstream string) *stormLink {
	t.Helper()
	proxy, err := chaos.NewProxy(upstream)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	return &stormLink{Proxy: proxy}
}

// writePrograms writes the provider of credentials, and the target of what is done
// under a lock.
func (s *storm) writePrograms(t *testing.T) {
	t.Helper()
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "issued"), 0o700))
	s.provider = program(t, filepath.Join(s.dir, "provider"), `
name=`+s.dir+`/issued/$(echo "$BELAY_HOLDER" | tr / _)
case $1 in
issue) : > "$name"; echo '{"id": "some", "value": "not-to-be-seen"}' ;;
revoke) test -e "$name" || exit 3; rm "$name" ;;
esac
`)
	s.target = fenced(t, s.dir)
}

func (s *storm) startWorker(t *testing.T, h *stormHost) {
	t.Helper()
	args := []string{
		"--labels", "storm", "--max-processes", "16", "--redis-url", "redis://" + h.redis.Addr(),
		"--credentials", "vault=" + s.provider, "--port-dir", filepath.Join(s.dir, "ports"),
	}
	if s.engine != nil {
		args = append(args, "--container-engine", s.engine.Address)
	}
	h.worker = s.env.StartWorkerAt(t, h.link.Addr(), h.dir, args...)
}
