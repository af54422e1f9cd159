package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/batch"
	"belay.run/internal/run"
)

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, thousands(n))
	}
}

func TestBatchBarWritesLinesWhereNothingCanBeRedrawn(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	bar := newBatchBar(&out, func() time.Time { return now })
	show := func(ended, failed int) {
		bar.show(&batch.Document{Status: run.Running, Total: 1_000_000, Counts: batch.Counts{Succeeded: ended - failed, Failed: failed}})
	}
	show(0, 0)
	now = now.Add(2 * time.Second)
	show(100_000, 0)
	require.Empty(t, out.String(), "not each look is a line")
	now = now.Add(3 * time.Second)
	show(250_000, 3)
	require.Equal(t, "10:00:05 25% 250,000 of 1,000,000, 50,000/s, 15.0s left, 3 failed\n", out.String())
	out.Reset()
	now = now.Add(5 * time.Second)
	show(200_000, 1) // a part ended while it was looked at
	require.Contains(t, out.String(), "25% 250,000 of")
	bar.finish()
}

func TestBatchSummary(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	end := at.Add(20 * time.Second)
	d := &batch.Document{
		Status: run.Cancelled, Total: 5_000, Rate: 150, StartedAt: &at, EndedAt: &end,
		Cause:    &run.Cause{Trigger: run.TriggerUser, By: "ann@laptop", Message: "enough"},
		Counts:   batch.Counts{Succeeded: 2990, Failed: 10, NotStarted: 2000, Retried: 7},
		Failures: []batch.Failure{{Line: 7, ID: "hook-7", Message: "it answered 500"}},
		Notes:    []string{"nobody could be told"},
	}
	require.Equal(t, `cancelled: 3,000 of 5,000 tasks in 20.0s (150/s): cancelled by ann@laptop: enough
  succeeded 2990, failed 10, duplicate 0, skipped 0, not started 2000; retried 7
  line 7 (hook-7): it answered 500
  … and 9 more that failed
  note: nobody could be told
`, batchSummary(d, at))
	require.Equal(t, "###############...............", bar(&batch.Document{Total: 4, Counts: batch.Counts{Failed: 2}}, true))
}
