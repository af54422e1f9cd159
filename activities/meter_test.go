package activities_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/measure"
	"belay.run/internal/run"
)

// meter notes what it hears.
type meter struct {
	mu               sync.Mutex
	waited           []string
	stopped          []time.Duration
	running, most    int
	printed, dropped int64
	lost             []string
}

var _ activities.Meter = (*meter)(nil)

func (m *meter) note(f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }

func (m *meter) Waited(queue string, _ time.Duration) {
	m.note(func() { m.waited = append(m.waited, queue) })
}

func (m *meter) Stopped(took time.Duration) {
	m.note(func() { m.stopped = append(m.stopped, took) })
}

func (m *meter) Running(n int) {
	m.note(func() { m.running += n; m.most = max(m.most, m.running) })
}

func (m *meter) Logged(printed, dropped int64) {
	m.note(func() { m.printed += printed; m.dropped += dropped })
}

func (m *meter) LeaseLost(kind string) { m.note(func() { m.lost = append(m.lost, kind) }) }
func (m *meter) Released(string)       {}
func (m *meter) ReleaseFailed(string)  {}

func TestStepsAreMeasured(t *testing.T) {
	t.Parallel()
	h, m := setup(t, nil), &meter{}
	h.steps.Meter = m
	_, err := h.run(t, h.input("printf 1234567", func(in *activities.StepInput) { in.Step.OutputLimit = 4 }))
	require.NoError(t, err)
	require.Equal(t, []string{measure.Process}, m.waited)
	require.Equal(t, int64(7), m.printed)
	require.Equal(t, int64(3), m.dropped)
	require.Equal(t, []int{0, 1}, []int{m.running, m.most})
	require.Empty(t, m.stopped, "it was told nothing")
	_, err = h.run(t, h.input("exit 3"))
	requireTrigger(t, run.TriggerExitCode, err, true)
	require.Empty(t, m.stopped)

	_, err = h.run(t, h.input("exec sleep 600", func(in *activities.StepInput) { in.Step.Timeout = 50 * time.Millisecond }))
	requireTrigger(t, run.TriggerStepTimeout, err, false)
	require.Len(t, m.stopped, 1)
	require.Zero(t, m.running)
}

func TestTheWaitForAHostIsMeasured(t *testing.T) {
	t.Parallel()
	h, m := setup(t, nil), &meter{}
	h.bind(t, m)
	require.Equal(t, []string{measure.Host}, m.waited)
}
