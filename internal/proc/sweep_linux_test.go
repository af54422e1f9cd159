package proc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// None of these is parallel, for the reason given in death_linux_test.go.

func TestSweepEndsWhatNoLiveRunOwns(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			const n = 5
			leave := `trap '' TERM; sleep ` + forever + ` & echo $! >>pids; echo ready; wait`
			if !o.NoCgroup {
				leave = daemons(n-1) + leave // only a cgroup finds these
			}
			expect := 1
			if !o.NoCgroup {
				expect = n
			}
			dead := startWorker(t, o, "dead/build/step", leave, expect)
			alive := startWorker(t, o, "alive/build/step", leave, expect)
			elsewhere := startWorker(t, Options{StateDir: t.TempDir(), NoCgroup: o.NoCgroup}, "dead/build/step", leave, expect)
			own := script(t, `until [ -e go ]; do sleep 0.01; done; exit 4`)
			own.Node = "dead/build/own"
			p := start(t, h, own)
			for _, w := range []*worker{dead, alive, elsewhere} {
				killBoth(t, w)
			}
			n1, err := h.Sweep(t.Context(), func(node string) bool { return within(node, "alive") })
			require.NoError(t, err)
			require.Equal(t, 1, n1)
			requireGone(t, append(pidsIn(t, dead.dir), dead.step))
			for _, w := range []*worker{alive, elsewhere} {
				require.Len(t, living(append(pidsIn(t, w.dir), w.step)), expect+1)
			}
			n2, err := h.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, 1, n2)
			requireGone(t, append(pidsIn(t, alive.dir), alive.step))

			require.NoError(t, os.WriteFile(filepath.Join(own.Dir, "go"), nil, 0o600))
			require.Equal(t, 4, wait(t, p).ExitCode, "steps of this process are left alone")

			there := newHost(t, Options{StateDir: elsewhere.state, NoCgroup: o.NoCgroup})
			_, err = there.Sweep(t.Context(), nil)
			require.NoError(t, err)
			requireGone(t, append(pidsIn(t, elsewhere.dir), elsewhere.step))
		})
	}
}

func TestSweepNeedsNoRecord(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			w := startWorker(t, o, "run/build/step", `echo ready; sleep `+forever+` & echo $! >pids; wait`, 1)
			killBoth(t, w)
			for i, name := range recordsOf(t, h) {
				path := filepath.Join(h.records, name)
				if i%2 == 0 {
					require.NoError(t, os.WriteFile(path, []byte(`{"node": "run/bu`), 0o600)) // as on a full disk
				}
			}
			n, err := h.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Positive(t, n)
			require.False(t, lives(w.step))

			w = startWorker(t, o, "run/build/step", `echo ready; exec sleep `+forever, 1)
			killBoth(t, w)
			for _, name := range recordsOf(t, h) {
				require.NoError(t, os.Remove(filepath.Join(h.records, name)))
			}
			n, err = h.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.False(t, lives(w.step))
		})
	}
}

func TestRecordsOfAnotherBootMeanNothing(t *testing.T) {
	h := newHost(t, Options{NoCgroup: true})
	self := os.Getpid()
	r := record{Node: "run/build/step", Boot: "another", Supervisor: self, file: filepath.Join(h.records, "old"+recordSuffix)}
	require.NoError(t, r.write())
	n, err := h.Sweep(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// The pid of a record may belong to somebody else by now.
func TestAPidThatIsUsedAgainIsLeftAlone(t *testing.T) {
	h := newHost(t, Options{NoCgroup: true})
	w := startWorker(t, Options{StateDir: t.TempDir(), NoCgroup: true}, "run/build/step", `echo ready; exec sleep `+forever, 1)
	r := record{Node: "run/build/step", Boot: h.boot, Supervisor: w.supervisor, Start: 1, file: filepath.Join(h.records, "old"+recordSuffix)}
	require.NoError(t, r.write())
	require.ErrorIs(t, h.EndNode(t.Context(), "run"), ErrNotProved)
	require.True(t, lives(w.supervisor))
	require.True(t, lives(w.step))
}
