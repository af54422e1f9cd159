package proc

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errFull = errors.New("disk full")

// full is a writer that takes some bytes and then fails.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func TestAWriterThatFailsLosesOutputAndNotTheStep(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, `head -c 1000000 /dev/zero && echo more && exit 3`)
	job.Stdout = &full{left: 1000}
	p := start(t, h, job)
	r, err := p.Wait()
	require.Equal(t, 3, r.ExitCode, "the step has not noticed")
	require.ErrorIs(t, err, ErrOutput)
	require.ErrorIs(t, err, errFull)
	require.ErrorContains(t, err, strconv.Itoa(1_000_000+len("more\n")-1000)+" bytes")
}

// stuck is a writer that takes nothing until it is let go.
type stuck struct{ free chan struct{} }

func (s *stuck) Write(p []byte) (int, error) {
	<-s.free
	return len(p), nil
}

func TestAWriterThatIsStuckDoesNotHoldTheStepForEver(t *testing.T) {
	t.Parallel()
	writer := &stuck{free: make(chan struct{})}
	pipes, err := plumb(writer, nil)
	require.NoError(t, err)
	pipes.carry()
	_, err = pipes.ends[0].WriteString("hello")
	require.NoError(t, err)
	pipes.closeEnds()
	require.ErrorIs(t, pipes.drain(time.Millisecond, time.Millisecond), ErrOutput)
	close(writer.free)
	require.NoError(t, pipes.drain(patience, patience))
}

func TestAnOutsiderWhoHoldsTheOutputIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, `echo ready; until [ -e go ]; do sleep 0.01; done; echo last`)
	job.PipeDelay = 100 * time.Millisecond
	p := start(t, h, job)
	awaitOutput(t, job, "ready", 1)
	held, err := os.OpenFile("/proc/"+strconv.Itoa(p.PID())+"/fd/1", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	require.NoError(t, os.WriteFile(job.Dir+"/go", nil, 0o600))
	r := wait(t, p)
	require.True(t, r.Gone)
	require.Equal(t, "ready\nlast\n", outputOf(job), "what was written is kept")
}

// slow is a writer that needs a moment for every chunk.
type slow struct{ lines }

func (s *slow) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return s.lines.Write(p)
}

// A writer that is slower than the delay still gets all that lies in the pipe.
func TestASlowWriterLosesNothing(t *testing.T) {
	t.Parallel()
	writer := &slow{}
	pipes, err := plumb(writer, nil)
	require.NoError(t, err)
	text := strings.Repeat("x", 60_000)
	_, err = pipes.ends[0].WriteString(text)
	require.NoError(t, err)
	pipes.carry()
	require.NoError(t, pipes.drain(time.Millisecond, patience)) // the end stays open
	require.Equal(t, text, writer.String())
	pipes.closeEnds()
}

func TestWritersThatCannotBeComparedAreTwo(t *testing.T) {
	t.Parallel()
	require.False(t, sameWriter(funcWriter{}, funcWriter{}))
	require.True(t, sameWriter(os.Stdout, os.Stdout))
}

type funcWriter struct{ _ []func() }

func (funcWriter) Write(p []byte) (int, error) { return len(p), nil }
