package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/testkit/need"
)

// fenced writes a program, the target of writes that a lock protects: called with
// the name of the lock, a token and who writes, it refuses a token smaller than one
// that it has seen. It keeps what was written in a file for each lock, below
// "written", and what it refused in the file "refused".
func fenced(t *testing.T, dir string) string {
	t.Helper()
	need.Program(t, "flock", "apt-get install util-linux")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "written"), 0o700))
	return program(t, filepath.Join(dir, "target"), `
exec 9>>"`+dir+`/written/$1"
flock 9
seen=$(tail -n 1 "`+dir+`/written/$1" | cut -d' ' -f1)
if [ "$2" -lt "${seen:-0}" ]; then echo "$2 $3" >> "`+dir+`/refused"; exit 7; fi
echo "$2 $3" >&9
`)
}

// program writes a shell script that can be run.
func program(t *testing.T, path, script string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nset -e"+script), 0o700))
	return path
}

// TestHolderThatWakesUpIsRefused is bsm/redislock#93: worker and supervisor of a
// holder are stopped for longer than its lease, and its step, which nobody is there
// to end, goes on to write. The next holder's first write is the last that the target
// takes of the late one.
func TestHolderThatWakesUpIsRefused(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	dir := t.TempDir()
	target := fenced(t, dir)
	file := func(label, script string) string {
		return on(label, `
    steps:
      - name: a
        grace_period: 1s
        resources: [{kind: lock, name: fenced-door}]
        run: |
          write() { '`+target+`' door "$BELAY_LOCK_TOKEN_FENCED_DOOR" `+label+`; }
          `+script+`
`)
	}
	w := env.StartWorker(t, t.TempDir(), "--labels", "late")
	env.StartWorker(t, t.TempDir(), "--labels", "next")
	late := env.Run(t, file("late", "write; echo ready; while write; do sleep 0.1; done; echo refused > '"+dir+"/seen'; sleep 600"))
	late.WaitLog("s/a", "ready")
	next := env.Run(t, file("next", "write; while ! test -e '"+dir+"/seen'; do sleep 0.1; done; write"))
	next.WaitFor("it waits for the lock", func(d *run.Document) bool {
		return len(d.Stages) > 0 && len(d.Stages[0].Steps) > 0 && d.Stages[0].Steps[0].WaitingFor != nil
	})
	stopped := append([]int{w.PID()}, supervisors(t, w.PID())...)
	signalAll(stopped, syscall.SIGSTOP)
	require.Equal(t, run.Succeeded, next.Wait().Status)
	signalAll(stopped, syscall.SIGCONT)
	require.Equal(t, run.Failed, late.Wait().Status)

	writers := slices.Collect(lines(t, filepath.Join(dir, "written", "door")))
	first := slices.IndexFunc(writers, func(line string) bool { return strings.HasSuffix(line, " next") })
	require.Positive(t, first)
	for i, line := range writers {
		require.Equal(t, i >= first, strings.HasSuffix(line, " next"), "%v", writers[max(0, i-1):])
	}
	require.NotEmpty(t, slices.Collect(lines(t, filepath.Join(dir, "refused"))))
}
