package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/dev/chaos"
	"belay.run/dev/e2e"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/testkit/engine"
	"belay.run/internal/testkit/need"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// TestNothingIsLeft lets rounds of runs, which hold every kind of resource that
// needs no container engine, live through random faults, and then looks whether
// anything of them is left: not with Belay's eyes, but with those of the operating
// system and of Redis. BELAY_STORM_ROUNDS sets how many rounds, of eight runs each,
// and BELAY_STORM_SEED the first of their seeds.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	rounds, seed := number(t, "BELAY_STORM_ROUNDS", 3), number(t, "BELAY_STORM_SEED", 1)
	s := newStorm(t, nil)
	for i := range rounds {
		s.round(t, uint64(seed+i))
	}
}

// TestNothingIsLeftOfContainers is TestNothingIsLeft for runs which also have a
// step and a service in containers; the engine is asked too what is left.
func TestNothingIsLeftOfContainers(t *testing.T) {
	t.Parallel()
	rounds, seed := number(t, "BELAY_STORM_ROUNDS", 1), number(t, "BELAY_STORM_SEED", 501)
	s := newStorm(t, engine.Need(t))
	for i := range rounds {
		s.round(t, uint64(seed+i))
	}
}

func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

const (
	stormRuns = 8
	// stormTimeout is the timeout of a pipeline that is to run into it.
	stormTimeout = "3s"
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
	dir, provider string
}

// stormHost is a worker behind a link that can be cut.
type stormHost struct {
	dir  string
	link *chaos.Proxy
	cut  bool
	// frozen says that the worker was stopped, and not killed since.
	frozen bool
	worker *e2e.Worker
}

func newStorm(t *testing.T, eng *engine.Engine) *storm {
	t.Helper()
	need.Program(t, "redis-server", "apt-get install redis-server")
	s := &storm{dir: t.TempDir(), engine: eng}
	s.redis = redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s.rdb = s.redis.Client(t)
	s.env = e2e.Start(t, e2e.Options{RedisURL: s.redis.URL, Data: t.TempDir(), NoWorker: true})
	s.provider = filepath.Join(s.dir, "provider")
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "issued"), 0o700))
	script := "#!/bin/sh\nset -e\nname=" + s.dir + `/issued/$(echo "$BELAY_HOLDER" | tr / _)
case $1 in
issue) : > "$name"; echo '{"id": "some", "value": "not-to-be-seen"}' ;;
revoke) test -e "$name" || exit 3; rm "$name" ;;
esac
`
	require.NoError(t, os.WriteFile(s.provider, []byte(script), 0o700))
	for range 2 {
		h := &stormHost{dir: t.TempDir()}
		var err error
		h.link, err = chaos.NewProxy(s.env.Temporal.Address())
		require.NoError(t, err)
		t.Cleanup(h.link.Close)
		s.hosts = append(s.hosts, h)
		s.startWorker(t, h)
	}
	return s
}

func (s *storm) startWorker(t *testing.T, h *stormHost) {
	t.Helper()
	args := []string{
		"--labels", "storm", "--max-processes", "16",
		"--credentials", "vault=" + s.provider, "--port-dir", filepath.Join(s.dir, "ports"),
	}
	if s.engine != nil {
		args = append(args, "--container-engine", s.engine.Address)
	}
	h.worker = s.env.StartWorkerAt(t, h.link.Addr(), h.dir, args...)
}

// victim is a run of a round.
type victim struct {
	runs.Ref
	mark, dir string
	cancelled bool // and that was heard before it ended
}

// pipeline is what each of them runs: a step that holds something of every kind,
// some processes that do not want to end, and something to tidy up.
func (s *storm) pipeline(n int, v *victim, timeout string) string {
	return fmt.Sprintf(`
version: 1
name: storm
timeout: %s
finally_timeout: 20s
release_timeout: 30s
stages:
  - name: one
    runs_on: storm
    env: {OUT: '%s'}
    steps:
      - name: hold
        grace_period: 1s
        retry: {max_attempts: 3, initial_interval: 500ms}
        resources:
          - {kind: lock, name: lock-%d}
          - {kind: slot, name: places, limit: 5}
          - {kind: port, name: web}
          - {kind: temp_dir, name: scratch}
          - {kind: credential, name: TOKEN, provider: vault}
          - kind: custom
            name: window
            acquire: ': > "$OUT/held/$BELAY_ATTEMPT"; echo "id=$BELAY_ATTEMPT"'
            release: 'rm -f "$OUT/held/${BELAY_RESOURCE_ID:-$BELAY_ATTEMPT}"'
        run: |
          for other in "$OUT"/alive/*; do
            if grep -qs "OUT=$OUT" "/proc/${other##*/}/environ"; then echo "$BELAY_ATTEMPT beside $other" >> "$OUT/overlaps"; fi
          done
          : > "$OUT/alive/$$"
          : > "$BELAY_DIR_SCRATCH/file"; echo "$BELAY_DIR_SCRATCH" >> "$OUT/scratch"
          trap '' TERM
          setsid sleep %s &
          sleep %s & sleep %d
      %s
    finally: [{name: tidy, run: 'echo tidied >> "$OUT/tidied"'}]
`, timeout, v.dir, n%3, v.mark, v.mark, 1+n%4, s.after())
}

// after is the step behind that: in a container beside another, where there is an
// engine. Neither of them wants to end.
func (s *storm) after() string {
	if s.engine == nil {
		return `- {name: after, run: "sleep 1"}`
	}
	image := "{name: " + engine.Image + ", pull: never}"
	return "- {name: after, image: " + image + `, grace_period: 1s, run: "trap '' TERM; sleep 2"}
    services:
      - {name: beside, image: ` + image + `, command: [sleep, "3600"]}`
}

// round starts its runs, lets faults happen to them, mends what was broken, and
// looks what is left once they have ended.
func (s *storm) round(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	victims := make([]*victim, stormRuns)
	for i := range victims {
		victims[i] = s.start(t, seed, i, rng)
	}
	var told []string
	for range 4 + rng.IntN(4) {
		pause(t, time.Duration(rng.IntN(1500))*time.Millisecond)
		told = append(told, s.fault(t, rng, victims))
	}
	s.mend(t)
	t.Logf("seed %d: %s", seed, strings.Join(told, ", "))
	ends, held := map[run.Status]int{}, 0
	for _, v := range victims {
		ends[s.check(t, v)]++
		if _, err := os.Stat(filepath.Join(v.dir, "scratch")); err == nil {
			held++
		}
	}
	s.checkHosts(t)
	require.NotZero(t, held, "no run came so far as to hold anything")
	t.Logf("seed %d: %d of %d runs came to hold something; they ended as %v", seed, held, len(victims), ends)
}

// pause lets a random time pass before a fault: that is the moment it happens at,
// and nothing waits for it.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

func (s *storm) start(t *testing.T, seed uint64, n int, rng *rand.Rand) *victim {
	t.Helper()
	v := &victim{mark: seconds(4000 + int(seed%500)*stormRuns + n), dir: filepath.Join(s.dir, fmt.Sprintf("%d-%d", seed, n))}
	for _, dir := range []string{"held", "alive"} {
		require.NoError(t, os.MkdirAll(filepath.Join(v.dir, dir), 0o700))
	}
	timeout := "2m"
	if rng.IntN(6) == 0 {
		timeout = stormTimeout
	}
	r := s.env.Run(t, s.pipeline(n, v, timeout), func(in *workflows.PipelineInput) { in.Sender = "storm" })
	v.Ref = r.Ref
	return v
}

// fault lets one thing happen and says which.
func (s *storm) fault(t *testing.T, rng *rand.Rand, victims []*victim) string {
	t.Helper()
	v, h := victims[rng.IntN(len(victims))], s.hosts[rng.IntN(len(s.hosts))]
	switch n := rng.IntN(13); n {
	case 0, 1:
		v.cancelled = s.env.CLI(t, "cancel", v.String(), "--reason", "storm").Code == 0 || v.cancelled
		return "cancel of " + v.mark
	case 2:
		v.cancelled = s.env.CLI(t, "cancel", v.String(), "--now").Code == 0 || v.cancelled
		return "cancel --now of " + v.mark
	case 3, 4:
		// It may have ended.
		_ = s.env.Temporal.Client().TerminateWorkflow(t.Context(), v.ID, v.RunID, "storm")
		return "terminate of " + v.mark
	case 5:
		_ = s.env.Temporal.Client().TerminateWorkflow(t.Context(), v.ID, v.RunID, "storm")
		_ = s.env.Temporal.Client().TerminateWorkflow(t.Context(), run.ChildID(v.ID, v.RunID, "one"), "", "storm")
		return "terminate of " + v.mark + " and its stage"
	case 6, 7:
		h.worker.Kill()
		h.frozen = false
		s.mend(t) // a worker waits for Temporal before it is ready
		s.startWorker(t, h)
		return "kill -9 of a worker"
	case 8:
		return fmt.Sprintf("kill -9 of %d supervisors", killSupervisors(t, h.worker.PID()))
	case 9:
		s.redis.Stop(t)
		s.redis.Restart(t)
		return "restart of Redis"
	case 10:
		s.env.RestartTemporal(t)
		return "restart of Temporal"
	case 11:
		h.frozen = true
		h.worker.Signal(syscall.SIGSTOP)
		return "SIGSTOP of a worker"
	default:
		if h.cut {
			return "nothing"
		}
		h.cut = true
		require.NoError(t, h.link.Cut())
		return "a cut between a worker and Temporal"
	}
}

// stormLease is longer than any lease, and than Temporal waits for a heartbeat.
const stormLease = 35 * time.Second

// mend makes everything work again, what was stopped after its leases are over.
func (s *storm) mend(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		if h.frozen {
			pause(t, stormLease)
			h.worker.Signal(syscall.SIGCONT)
			h.frozen = false
		}
		if h.cut {
			require.NoError(t, h.link.Heal(t.Context()))
			h.cut = false
		}
	}
}

// killSupervisors kills the supervisors of a worker's steps.
func killSupervisors(t *testing.T, worker int) int {
	t.Helper()
	killed := 0
	for _, pid := range children(t, worker) {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasPrefix(string(cmd), "belay-supervisor") && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

func children(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var pids []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}
