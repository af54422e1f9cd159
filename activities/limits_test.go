package activities_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

func TestLimits(t *testing.T) {
	t.Parallel()

	limited := func(l spec.Limits) func(*activities.StepInput) {
		return func(in *activities.StepInput) {
			in.Step.Limits, in.Step.OutputLimit = &l, max(l.Output, 1<<20)
			in.Step.Retry.MaxAttempts, in.Step.GracePeriod = 3, 30*time.Second
		}
	}
	const forever = "\nsleep 1000"
	for name, c := range map[string]struct {
		limits spec.Limits
		script string
		want   string
	}{
		"MemoryOfTheWholeTree": {
			spec.Limits{Memory: 96 << 20},
			// Two processes that are below the limit each.
			"for i in 1 2; do (head -c 70000000 /dev/zero; sleep 1000) | tail -c 70000000 & done; wait",
			"memory: its processes held",
		},
		"Processes":           {spec.Limits{PIDs: 5}, "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait", "processes and threads; the limit is 5"},
		"ComputingTime":       {spec.Limits{CPUTime: 200 * time.Millisecond}, "while :; do :; done", "cpu_time: its processes computed for"},
		"ComputingInChildren": {spec.Limits{CPUTime: 300 * time.Millisecond}, "while :; do (i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done); done", "cpu_time: "},
		"Output":              {spec.Limits{Output: 1 << 10}, "head -c 5000 /dev/zero | tr '\\0' Y; head -c 5000 /dev/zero | tr '\\0' Y >&2" + forever, "output: it printed "},
		"Disk":                {spec.Limits{Disk: 2 << 20}, "head -c 3000000 /dev/zero >big" + forever, "disk: its stage takes 2.9MiB or more; the limit is 2MiB"},
		"DiskOfTemporaryFiles": {
			spec.Limits{Disk: 2 << 20}, `head -c 3000000 /dev/zero >"$TMPDIR/big"` + forever, "disk: its stage takes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, nil)
			in := h.input(c.script, limited(c.limits))
			in.Step.GracePeriod = time.Second
			res, err := h.run(t, in)
			requireTrigger(t, run.TriggerLimitExceeded, err, false)
			require.Equal(t, run.TriggerLimitExceeded, res.Cause.Trigger)
			require.Contains(t, res.Cause.Message, c.want)
			require.Contains(t, h.output(t), c.want, "the log says why it ended")
		})
	}

	t.Run("AreLookedAtAgainWhenTheProcessHasEnded", func(t *testing.T) {
		t.Parallel()
		for script, limits := range map[string]spec.Limits{
			"head -c 3000000 /dev/zero >big":        {Disk: 2 << 20},
			"head -c 5000 /dev/zero | tr '\\0' Y":   {Output: 1 << 10},
			"head -c 3000000 /dev/zero >b; exit 9 ": {Disk: 2 << 20},
		} {
			h := setup(t, nil)
			_, err := h.run(t, h.input(script, limited(limits)))
			requireTrigger(t, run.TriggerLimitExceeded, err, false)
		}
	})

	t.Run("CountTheComputingOfAllCommandsTogether", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		const work = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
		in := h.input(work, limited(spec.Limits{CPUTime: 100 * time.Millisecond}))
		for range 99 {
			in.Step.Run = append(in.Step.Run, spec.Command{Script: work})
		}
		res, err := h.run(t, in)
		requireTrigger(t, run.TriggerLimitExceeded, err, false)
		require.Contains(t, res.Cause.Message, "the limit is 100ms")
	})

	t.Run("LetGoOnWhatKeepsToThem", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input("echo fine; head -c 100000 /dev/zero >small; for i in 1 2 3; do sleep 0.2 & done; wait", limited(spec.Limits{
			Memory: 1 << 30, PIDs: 10, CPUTime: time.Minute, Output: 1 << 20, Disk: 10 << 20,
		})))
		require.NoError(t, err)
		require.Contains(t, h.output(t), "fine")
	})

	t.Run("KeepTheFirstOfTheOutput", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input("head -c 100000 /dev/zero | tr '\\0' Y", limited(spec.Limits{Output: 1 << 10}), func(in *activities.StepInput) {
			in.Step.OutputLimit = 1 << 10
		}))
		requireTrigger(t, run.TriggerLimitExceeded, err, false)
		require.Equal(t, 1024, strings.Count(h.output(t), "Y"))
	})

	t.Run("GiveTheGracePeriodWhereNobodySuffers", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(`trap 'echo asked; exit 0' TERM; while :; do :; done`, limited(spec.Limits{CPUTime: 100 * time.Millisecond})))
		requireTrigger(t, run.TriggerLimitExceeded, err, false)
		require.Contains(t, h.output(t), "asked")
	})

	t.Run("LeaveAStepCancelledThatWentOverThemAsItEnded", func(t *testing.T) {
		t.Parallel()
		h := setup(t, temporal.NewCanceledError()) // the first heartbeat is answered so
		_, err := h.run(t, h.input(`trap 'head -c 5000 /dev/zero | tr "\0" Y; exit 0' TERM; echo ready; while :; do sleep 0.05; done`,
			limited(spec.Limits{Output: 1 << 10})))
		require.True(t, temporal.IsCanceledError(err), err)
	})
}
