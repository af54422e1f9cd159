package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/run"
)

const batchHead = "POST /api/v1/batches HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"

// chunked is a piece of a body whose length is not known before its end.
func chunked(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

func TestABatchIsStarted(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	a := b.batch(t, "?tenant=shop&project=web&concurrency=7&rate=2.5&chunk=10", struct{ io.Reader }{strings.NewReader(lines(25))})
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	d := decode[batch.Document](t, a)
	require.Equal(t, run.Running, d.Status)
	require.Equal(t, 25, d.Total)
	require.Equal(t, 25, d.NotStarted)
	require.True(t, strings.HasPrefix(d.ID, "shop/web/batch/"))
	require.Len(t, b.stored(t), 3)

	in := b.batches.started()[0]
	require.Equal(t, batch.Input{
		Folder: d.Folder, Total: 25, ChunkSize: 10, Concurrency: 7, Rate: 2.5, Tenant: "shop", Project: "web", Sender: "http@127.0.0.1",
	}, in)

	require.Equal(t, batchPath+url.PathEscape(d.ID), a.Header.Get("Location"))
	for _, path := range []string{a.Header.Get("Location"), batchPath + d.ID} {
		a = b.ask(t, http.MethodGet, path, http.NoBody)
		require.Equal(t, http.StatusOK, a.StatusCode, a.text)
		require.Equal(t, d.ID, decode[batch.Document](t, a).ID)
	}
	problem(t, b.ask(t, http.MethodGet, batchPath+"shop/web/batch/none", http.NoBody), http.StatusNotFound, "not_found")
	problem(t, b.ask(t, http.MethodGet, batchPath, http.NoBody), http.StatusNotFound, "not_found")
}

func TestABatchByTheLastPartOfItsID(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	require.Equal(t, http.StatusAccepted, b.batch(t, "", strings.NewReader(lines(1)), "Idempotency-Key", "nightly/1").StatusCode)
	a := b.ask(t, http.MethodGet, batchPath+url.PathEscape(run.BatchID("default", "default", "nightly/1")), http.NoBody)
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Equal(t, http.StatusAccepted, b.batch(t, "", strings.NewReader(lines(1)), "Idempotency-Key", "nightly").StatusCode)
	require.Equal(t, "default/default/batch/nightly", decode[batch.Document](t, b.ask(t, http.MethodGet, batchPath+"nightly", http.NoBody)).ID)
}

// Of a batch with bad lines nothing starts, and nothing stays in the store.
func TestABatchWithBadLines(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	text := lines(40) + "{\n" + `{"type":"nop"}` + "\n\n" + `{"id":"t3","type":"noop"}` + "\n" + lines(0)
	p := problem(t, b.batch(t, "?chunk=10", strings.NewReader(text)), http.StatusBadRequest, "invalid_batch")
	require.Equal(t, 3, p.Count)
	require.Equal(t, []int{41, 42, 44}, []int{p.Errors[0].Line, p.Errors[1].Line, p.Errors[2].Line})
	require.Contains(t, p.Errors[1].Message, "did you mean noop?")
	problem(t, b.batch(t, "", strings.NewReader("\n")), http.StatusBadRequest, "invalid_batch")
	problem(t, b.batch(t, "", strings.NewReader(strings.Repeat("x", batch.MaxLine+10))), http.StatusBadRequest, "invalid_batch")
	require.Empty(t, b.stored(t))
	require.Empty(t, b.batches.started())
}

func TestABatchWithBadParameters(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	for _, query := range []string{"?chunk=0", "?chunk=x", "?concurrency=-1", "?rate=NaN", "?rate=-1", "?rate=1e-300", "?tenant=a/b", "?project=-", "?window=3", "?rate=1&rate=2"} {
		problem(t, b.batch(t, query, strings.NewReader(lines(1))), http.StatusBadRequest, "bad_request")
	}
	problem(t, b.batch(t, "", strings.NewReader(lines(1)), "Idempotency-Key", ""), http.StatusBadRequest, "bad_request")
	a := b.ask(t, http.MethodPost, "/api/v1/batches", strings.NewReader(lines(1)), "Content-Type", "application/x-www-form-urlencoded")
	problem(t, a, http.StatusUnsupportedMediaType, "unsupported_media_type")
	require.Empty(t, b.batches.started())
}

// reaches waits until so many chunks of a batch that is on its way are stored.
func (b *testBundle) reaches(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool { return len(b.stored(t)) == n }, "the chunks are stored while the body comes")
}

// A body that breaks off starts nothing and leaves nothing.
func TestABatchThatIsCutOff(t *testing.T) {
	t.Parallel()
	for name, conn := range map[string]string{
		"ByTheEndOfItsConnection": batchHead + "Transfer-Encoding: chunked\r\n\r\n" + chunked(lines(600)),
		"BeforeItsLength":         batchHead + "Content-Length: 1000000\r\n\r\n" + lines(600),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{})
			c := b.raw(t, conn)
			b.reaches(t, 2)
			require.NoError(t, c.CloseWrite())
			problem(t, heard(t, c), http.StatusBadRequest, "bad_request")
			require.Empty(t, b.stored(t))
			require.Empty(t, b.batches.started())
		})
	}
	t.Run("ByAReset", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{})
		c := b.raw(t, batchHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked(lines(600)))
		b.reaches(t, 2)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		b.reaches(t, 0)
		require.Empty(t, b.batches.started())
	})
}

func TestABatchThatStandsStill(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{times: times{read: 500 * time.Millisecond}}})
	c := b.raw(t, batchHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked(lines(600)))
	problem(t, heard(t, c), http.StatusRequestTimeout, "timeout")
	require.Empty(t, b.stored(t))
	require.Empty(t, b.batches.started())
}

// A batch may take longer than what else the server takes, but not for ever.
func TestABatchThatComesSlowly(t *testing.T) {
	t.Parallel()
	const server = 100 * time.Millisecond
	b := setup(t, options{server: server, config: Config{times: times{read: patience, write: patience}}})
	out, in := io.Pipe()
	go func() {
		for i := range 3 {
			_, _ = fmt.Fprintf(in, `{"id":"t%d","type":"noop"}`+"\n", i)
			time.Sleep(2 * server) // the slowness is what is tested
		}
		_ = in.Close()
	}()
	a := b.batch(t, "", out)
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	require.Equal(t, 3, decode[batch.Document](t, a).Total)

	b = setup(t, options{config: Config{times: times{read: patience, upload: 200 * time.Millisecond}}})
	c := b.raw(t, batchHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked(lines(1)))
	problem(t, heard(t, c), http.StatusRequestTimeout, "timeout")
}

func TestBatchesOnTheirWayAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	for range uploadsAtOnce {
		b.raw(t, batchHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked(lines(250)))
	}
	b.reaches(t, uploadsAtOnce)
	problem(t, b.batch(t, "", strings.NewReader(lines(1))), http.StatusTooManyRequests, "busy")
}

// The same Idempotency-Key is the same batch, and who sent it again is kept.
func TestABatchThatIsSentTwice(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	a := b.batch(t, "", strings.NewReader(lines(3)), "Idempotency-Key", "k")
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	again := b.batch(t, "", strings.NewReader(lines(3)), "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, again.StatusCode, again.text)
	require.Equal(t, a.Header.Get("Location"), again.Header.Get("Location"))
	require.Equal(t, decode[batch.Document](t, a).Folder, decode[batch.Document](t, again).Folder)
	require.Len(t, b.batches.started(), 1)
	require.Len(t, b.stored(t), 1, "of the second nothing stays")
	require.Len(t, b.audit.entries, 1)
	e := b.audit.entries[0]
	require.Equal(t, audit.Attached, e.Decision)
	require.Equal(t, "default/default/batch/k", e.Owner)
	require.Equal(t, "http@127.0.0.1", e.By)
	require.Equal(t, "k", e.RequestID)
}

func TestABatchThatCannotStart(t *testing.T) {
	t.Parallel()
	away := errors.New("no connection")

	t.Run("LeavesNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{})
		b.batches.startErr = away
		problem(t, b.batch(t, "", strings.NewReader(lines(3))), http.StatusServiceUnavailable, "unavailable")
		require.Empty(t, b.stored(t))
	})

	t.Run("UnlessTheAnswerAloneWasLost", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{})
		b.batches.startErr, b.batches.lost = away, true
		require.Equal(t, http.StatusAccepted, b.batch(t, "", strings.NewReader(lines(3))).StatusCode)
		require.Len(t, b.stored(t), 1)
	})

	t.Run("OrNobodyKnows", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{})
		b.batches.startErr, b.batches.lost, b.batches.readErr = away, true, away
		problem(t, b.batch(t, "", strings.NewReader(lines(3))), http.StatusServiceUnavailable, "unavailable")
		require.Len(t, b.stored(t), 1, "what may run is not taken away")
	})

	t.Run("ForTheStore", func(t *testing.T) {
		t.Parallel()
		b := setup(t, options{})
		require.NoError(t, b.store.Close())
		problem(t, b.batch(t, "", strings.NewReader(lines(3))), http.StatusServiceUnavailable, "unavailable")
		require.Empty(t, b.batches.started())
	})
}

func TestABatchThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.batches.readErr = errors.New("no connection")
	problem(t, b.ask(t, http.MethodGet, batchPath+"x", http.NoBody), http.StatusServiceUnavailable, "unavailable")
	b.batches.readErr = &control.UnknownError{ID: "x", Reason: "it is a workflow of type Pipeline"}
	problem(t, b.ask(t, http.MethodGet, batchPath+"x", http.NoBody), http.StatusNotFound, "not_found")
}
