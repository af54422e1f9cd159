package logs_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/redistest"
)

// BenchmarkBurst is a step that prints as fast as it can, in the pieces that
// os/exec passes on.
func BenchmarkBurst(b *testing.B) {
	b.Run("store alone", func(b *testing.B) { burst(b, newLogs(b)) })
	b.Run("with Redis", func(b *testing.B) {
		l := logs.New(openStore(b), redistest.Start(b).Client(b))
		defer l.Close()
		burst(b, l)
	})
}

func burst(b *testing.B, l *logs.Logs) {
	b.Helper()
	line := []byte("2026-01-02T03:04:05Z INFO  compiling package github.com/example/project/internal/thing [ok] 12.5ms\n")
	piece := bytes.Repeat(line, 32<<10/len(line))
	n := 0
	b.SetBytes(100 << 20)
	for b.Loop() {
		n++
		w := openLog(b, l, "a/b", n, logs.Options{})
		for sent := 0; sent < 100<<20; sent += len(piece) {
			_, err := w.Stdout().Write(piece)
			require.NoError(b, err)
		}
		closeLog(b, w)
		b.StopTimer()
		require.NoError(b, l.Remove(b.Context(), runKey))
		b.StartTimer()
	}
}

// BenchmarkShortStep is what the log adds to a step that prints a line.
func BenchmarkShortStep(b *testing.B) {
	l := newLogs(b)
	n := 0
	for b.Loop() {
		n++
		w := openLog(b, l, fmt.Sprintf("s%d/x", n), 1, logs.Options{})
		_, err := w.Stdout().Write([]byte("done\n"))
		require.NoError(b, err)
		closeLog(b, w)
	}
}

func BenchmarkReplay(b *testing.B) {
	l := newLogs(b)
	w := openLog(b, l, "a/b", 1, logs.Options{})
	piece := bytes.Repeat([]byte("x"), 32<<10)
	for range 1000 {
		_, err := w.Stdout().Write(piece)
		require.NoError(b, err)
	}
	closeLog(b, w)
	b.SetBytes(1000 * 32 << 10)
	for b.Loop() {
		require.NoError(b, l.Replay(b.Context(), runKey, logs.Filter{}, func(logs.Record) error { return nil }))
	}
}
