package supervisor

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func aJob() Job {
	return Job{
		Path: "/bin/sh", Argv: []string{"sh", "-c", "", "\xff not UTF-8"}, Dir: "/tmp/with space\n",
		Env: []string{"A=b=c", "EMPTY="}, Cgroup: "/sys/fs/cgroup/x", Record: "/state/x.json",
		HoldErr: true, Grace: 10 * time.Second, KillBound: time.Second, DeadMan: 1500 * time.Millisecond,
	}
}

func TestAJobArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	for _, job := range []Job{aJob(), {Argv: []string{}, Env: []string{}}} {
		frame, err := job.Encode()
		require.NoError(t, err)
		r := bytes.NewReader(append(frame, "TK"...))
		got, err := ReadJob(r)
		require.NoError(t, err)
		require.Equal(t, job, got)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "TK", string(rest), "orders that follow are left in the pipe")
	}
}

func TestAJobThatBreaksOffIsRefused(t *testing.T) {
	t.Parallel()
	frame, err := aJob().Encode()
	require.NoError(t, err)
	for n := range frame {
		_, err := ReadJob(bytes.NewReader(frame[:n]))
		require.Error(t, err, n)
	}
}

func TestAJobThatIsTooBigIsRefused(t *testing.T) {
	t.Parallel()
	_, err := Job{Env: []string{strings.Repeat("x", MaxJob)}}.Encode()
	require.ErrorIs(t, err, ErrJob)
	_, err = ReadJob(strings.NewReader("\xff\xff\xff\xff"))
	require.ErrorIs(t, err, ErrJob)
}

func FuzzReadJob(f *testing.F) {
	frame, err := aJob().Encode()
	require.NoError(f, err)
	f.Add(frame)
	f.Add([]byte("\x00\x00\x00\x10\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		job, err := ReadJob(bytes.NewReader(data))
		if err != nil {
			require.True(t, errors.Is(err, ErrJob) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), err)
			return
		}
		again, err := job.Encode()
		require.NoError(t, err)
		require.LessOrEqual(t, len(again), len(data))
	})
}

func TestAReportArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	reports := []Report{
		{Stage: Started, Value: 4711},
		{Stage: Failed, Value: 7},
		{Stage: Killing},
		{Stage: Ended, Outcome: Outcome{
			Code: -1, Signal: 9, User: time.Second, System: 17 * time.Microsecond, MaxRSS: 1 << 40,
			Leftover: 3, Terminated: true, DeadMan: true, Survivors: 2,
		}},
	}
	for _, want := range reports {
		line := string(want.Encode())
		require.True(t, strings.HasSuffix(line, "\n"))
		got, err := ParseReport(strings.TrimSuffix(line, "\n"))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "panic: x", "e 1 2 3", "e 0 0 0 0 0 0 0 0 0 x", "ee 0 0 0 0 0 0 0 0 0 0"} {
		_, err := ParseReport(line)
		require.ErrorIs(t, err, ErrReport, line)
	}
}
