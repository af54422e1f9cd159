package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/testkit/engine"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// TestNothingIsLeft lets rounds of runs, which hold every kind of resource that
// needs no container engine, live through random faults, and then looks whether
// anything of them is left: not with Belay's eyes, but with those of the operating
// system and of Redis. BELAY_STORM_ROUNDS sets how many rounds, of ten runs each,
// and BELAY_STORM_SEED the first of their seeds.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	rounds(t, 2, 1, func(*testing.T) *engine.Engine { return nil })
}

// TestNothingIsLeftOfContainers is TestNothingIsLeft for runs of which half also
// have a step and a service in containers; the engine, which may be restarted under
// them, is asked too what is left.
func TestNothingIsLeftOfContainers(t *testing.T) {
	t.Parallel()
	rounds(t, 1, 501, func(t *testing.T) *engine.Engine { t.Helper(); return engine.Start(t, "../..") })
}

// rounds plays rounds, each in an environment of its own.
func rounds(t *testing.T, count, seed int, engineOf func(*testing.T) *engine.Engine) {
	t.Helper()
	count, seed = number(t, "BELAY_STORM_ROUNDS", count), number(t, "BELAY_STORM_SEED", seed)
	var starting sync.Mutex // one at a time: many at once keep each other from answering in time
	start := func(t *testing.T) *storm {
		t.Helper()
		starting.Lock()
		defer starting.Unlock()
		return newStorm(t, engineOf(t))
	}
	for i := range count {
		t.Run(fmt.Sprintf("seed %d", seed+i), func(t *testing.T) {
			t.Parallel()
			start(t).round(t, uint64(seed+i))
		})
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
	stormRuns = 10
	// doors is how many locks they share.
	doors = 3
	// stormTimeout is the timeout of a pipeline that is to run into it.
	stormTimeout = "3s"
)

// victim is a run of a round.
type victim struct {
	runs.Ref
	mark, dir string
	cancelled bool // and that was heard before it ended
}

// pipeline is what each of them runs: a step that holds something of every kind,
// some processes that do not want to end, and something to tidy up.
func (s *storm) pipeline(n int, v *victim, timeout string) string {
	door := n % doors
	return fmt.Sprintf(`
version: 1
name: storm
timeout: %s
finally_timeout: 20s
release_timeout: 30s
stages:
  - name: one
    runs_on: storm
    on_worker_lost: %s
    env: {OUT: '%s', TARGET: '%s'}
    steps:
      - name: hold
        grace_period: 1s
        retry: {max_attempts: 3, initial_interval: 500ms}
        resources:
          - {kind: lock, name: door-%d}
          - {kind: slot, name: places, limit: 5}
          - {kind: port, name: web}
          - {kind: temp_dir, name: scratch}
          - {kind: credential, name: TOKEN, provider: vault}
          - kind: custom
            name: window
            acquire: 'id=$(echo "$BELAY_HOLDER" | tr / _); : > "$OUT/held/$id"; echo "id=$id"'
            release: 'rm -f "$OUT/held/${BELAY_RESOURCE_ID:-$(echo "$BELAY_HOLDER" | tr / _)}"'
        run: |
          for other in "$OUT"/alive/*; do
            if grep -qs "OUT=$OUT" "/proc/${other##*/}/environ"; then echo "$BELAY_ATTEMPT beside $other" >> "$OUT/overlaps"; fi
          done
          : > "$OUT/alive/$$"
          echo "$BELAY_DIR_SCRATCH" >> "$OUT/scratch"; : > "$BELAY_DIR_SCRATCH/file"
          trap '' TERM
          setsid sleep %s &
          sleep %s &
          "$TARGET" door-%d "$BELAY_LOCK_TOKEN_DOOR_%d" "$BELAY_NODE $$"
          sleep %d
          "$TARGET" door-%d "$BELAY_LOCK_TOKEN_DOOR_%d" "$BELAY_NODE $$"
      %s
    finally: [{name: tidy, run: 'echo tidied >> "$OUT/tidied"'}]
`, timeout, []string{"fail", "rerun"}[n%2], v.dir, s.target, door, v.mark, v.mark, door, door, 1+n%4, door, door, s.after(n))
}

// after is the step behind that: where there is an engine, in every other run in a
// container beside another. Neither of them wants to end.
func (s *storm) after(n int) string {
	if s.engine == nil || n%2 == 0 {
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
	refused := s.checkTarget(t)
	require.NotZero(t, held, "no run came so far as to hold anything")
	t.Logf("seed %d: %d of %d runs came to hold something; they ended as %v; late writes refused: %d", seed, held, len(victims), ends, refused)
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
	v := &victim{mark: seconds(4000 + int(seed%500)*stormRuns + n), dir: filepath.Join(s.dir, strconv.Itoa(n))}
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
