package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"belay.run/internal/config"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for code, errs := range map[int][]error{
		ExitFailed:      {errors.New("anything"), &ExitError{Code: ExitFailed}},
		ExitUsage:       {usage("x"), &runs.UnknownError{Arg: "x"}, serviceerror.NewNotFound("x"), invalidFile(errors.New("x"))},
		ExitRejected:    {&ExitError{Code: ExitRejected}},
		ExitCancelled:   {errInterrupted, context.Canceled},
		ExitTimedOut:    {ended(run.TimedOut)},
		ExitUnreachable: {serviceerror.NewUnavailable("x"), serviceerror.NewDeadlineExceeded("x"), context.DeadlineExceeded, &config.UnreachableError{Err: errors.New("x")}},
	} {
		for _, err := range errs {
			require.Equal(t, code, exitError(err).Code, "%T", err)
			require.Equal(t, code, exitError(fmt.Errorf("doing something: %w", err)).Code, "wrapped %T", err)
		}
	}
}

func TestExitCodeOfEveryState(t *testing.T) {
	t.Parallel()
	want := map[run.Status]int{
		run.Succeeded: ExitOK, run.Duplicate: ExitOK, run.Skipped: ExitOK, run.Failed: ExitFailed,
		run.TimedOut: ExitTimedOut, run.Cancelled: ExitCancelled, run.Cancelling: ExitCancelled,
		run.Running: ExitCancelled, run.Pending: ExitCancelled,
	}
	for _, s := range run.Statuses() {
		code, ok := want[s]
		require.True(t, ok, s)
		require.Equal(t, code, exitCodeOf(s), s)
		if code == ExitOK {
			require.NoError(t, ended(s))
		}
	}
}

func TestExitCodeOfARefusedRun(t *testing.T) {
	t.Parallel()
	full := &run.Cause{Trigger: run.TriggerGroupFull}
	code := func(d *run.Document) int { return exitError(endedRun(d)).Code }
	require.Equal(t, ExitRejected, code(&run.Document{Status: run.Failed, Cause: full}))
	require.Equal(t, ExitRejected, code(&run.Document{Status: run.Duplicate, Cause: full}))
	require.Equal(t, ExitFailed, code(&run.Document{Status: run.Failed, Cause: &run.Cause{Trigger: run.TriggerExitCode}}))
	require.NoError(t, endedRun(&run.Document{Status: run.Succeeded}))
}

func TestWhatSignalsMean(t *testing.T) {
	t.Parallel()
	const (
		ctrlC = syscall.SIGINT
		term  = syscall.SIGTERM
		hup   = syscall.SIGHUP
	)
	for name, tc := range map[string]struct {
		keys interrupts
		sigs []syscall.Signal
		want []action
	}{
		"Own":             {interrupts{own: true}, []syscall.Signal{ctrlC, ctrlC}, []action{askCancel, detach}},
		"OwnTerm":         {interrupts{own: true}, []syscall.Signal{term, term, ctrlC}, []action{askCancel, nothing, detach}},
		"OwnTermAfter":    {interrupts{own: true}, []syscall.Signal{ctrlC, term, term}, []action{askCancel, nothing, nothing}},
		"OwnHangup":       {interrupts{own: true}, []syscall.Signal{hup}, []action{detach}},
		"OwnHangupLater":  {interrupts{own: true}, []syscall.Signal{ctrlC, hup}, []action{askCancel, detach}},
		"Attached":        {interrupts{}, []syscall.Signal{ctrlC}, []action{detach}},
		"AttachedTerm":    {interrupts{}, []syscall.Signal{term}, []action{detach}},
		"Embedded":        {interrupts{own: true, embedded: true}, []syscall.Signal{ctrlC, ctrlC, ctrlC}, []action{askCancel, askNow, detach}},
		"EmbeddedHangup":  {interrupts{own: true, embedded: true}, []syscall.Signal{hup, ctrlC}, []action{askCancel, askNow}},
		"EmbeddedTermHup": {interrupts{own: true, embedded: true}, []syscall.Signal{term, hup, term}, []action{askCancel, nothing, nothing}},
	} {
		for i, sig := range tc.sigs {
			require.Equal(t, tc.want[i], tc.keys.next(sig), "%s, signal %d", name, i+1)
		}
	}
}

func TestEchoesOfASignalCountOnce(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	pauses := []time.Duration{0, time.Millisecond, time.Millisecond, time.Second, 2 * time.Millisecond}
	sigs := []os.Signal{syscall.SIGINT, syscall.SIGINT, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}
	from, to := make(chan os.Signal, len(sigs)), make(chan os.Signal, len(sigs))
	for _, sig := range sigs {
		from <- sig
	}
	close(from)
	n := 0
	withoutEchoes(from, to, func() time.Time {
		clock = clock.Add(pauses[n])
		n++
		return clock
	})
	close(to)
	var got []os.Signal
	for sig := range to {
		got = append(got, sig)
	}
	require.Equal(t, []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGINT}, got)
}

func TestHintsOfErrors(t *testing.T) {
	t.Parallel()
	err := exitError(serviceerror.NewInvalidArgument("Namespace default has no mapping defined for search attribute BelayTenant"))
	require.Contains(t, err.Hint, "BelayDedupKey")
	require.Empty(t, exitError(serviceerror.NewInvalidArgument("something else")).Hint)
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "build/compile", quoted("build/compile"))
	require.Equal(t, "'build[os=linux]/compile'", quoted("build[os=linux]/compile"))
	require.Equal(t, `'it'\''s'`, quoted("it's"))
}
