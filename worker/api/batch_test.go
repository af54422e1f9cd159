package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
)

// begun starts a batch of so many tasks, three a chunk, and returns its path and what it is.
func (b *testBundle) begun(t *testing.T, query string, n int, headers ...string) (string, batch.Document) {
	t.Helper()
	a := b.batch(t, "?chunk=3"+query, strings.NewReader(lines(n)), headers...)
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	return a.Header.Get("Location"), decode[batch.Document](t, a)
}

// succeed records that all tasks of a batch have succeeded.
func (b *testBundle) succeed(t *testing.T, d *batch.Document, out task.Output) {
	t.Helper()
	in := batch.Input{Total: d.Total, ChunkSize: d.ChunkSize}
	for k := range in.Chunks() {
		c := batch.ChunkOf(d.Ref(), k, d.ChunkSize, d.Total)
		tasks, err := batch.Load(t.Context(), b.store, &c)
		require.NoError(t, err)
		j, err := batch.ReadJournal(t.Context(), b.store, &c)
		require.NoError(t, err)
		j.Lines = tasks.Lines
		require.NoError(t, j.Take(t.Context()))
		var entries []batch.Entry
		for i, one := range slices.Backward(tasks.Tasks) { // they end in another order than they came in
			entries = append(entries, batch.Entry{Place: i, Result: task.Result{ID: one.ID, Type: "noop", Status: task.Succeeded, Output: out}})
		}
		require.NoError(t, j.Record(t.Context(), entries))
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	path, d := b.begun(t, "&tenant=shop", 10)
	p := problem(t, b.ask(t, http.MethodGet, path+"/results", http.NoBody), http.StatusConflict, "not_ended")
	require.Contains(t, p.Detail, "is running")
	b.succeed(t, &d, nil)
	b.batches.ends(d.ID, run.Succeeded)

	a := b.ask(t, http.MethodGet, path+"/results", http.NoBody)
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Equal(t, "application/x-ndjson", a.Header.Get("Content-Type"))
	var ids []string
	for line := range strings.Lines(a.text) {
		var r task.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, task.Succeeded, r.Status)
		ids = append(ids, r.ID)
	}
	require.Equal(t, "t0 t1 t2 t3 t4 t5 t6 t7 t8 t9", strings.Join(ids, " "))

	a = b.ask(t, http.MethodHead, path+"/results", http.NoBody)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Empty(t, a.text)
	problem(t, b.ask(t, http.MethodGet, batchPath+"none/results", http.NoBody), http.StatusNotFound, "not_found")

	require.NoError(t, batch.Remove(t.Context(), b.store, d.Folder))
	p = problem(t, b.ask(t, http.MethodGet, path+"/results", http.NoBody), http.StatusNotFound, "not_found")
	require.Contains(t, p.Detail, "not in the store any more")
}

// A client is given its time for each piece of a long answer, not for all of it.
func TestResultsMayTakeLonger(t *testing.T) {
	t.Parallel()
	b := setup(t, options{server: time.Nanosecond, config: Config{times: times{read: patience, write: patience}}})
	path, d := b.begun(t, "", 10)
	b.succeed(t, &d, nil)
	b.batches.ends(d.ID, run.Succeeded)
	a := b.ask(t, http.MethodGet, path+"/results", http.NoBody)
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Equal(t, 10, strings.Count(a.text, "\n"))
}

func TestResultsOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{Tokens: tokens(t)}})
	ops, shop := []string{"Authorization", "Bearer " + opsToken}, []string{"Authorization", "Bearer " + shopToken}
	path, d := b.begun(t, "&tenant=bank", 2, append(ops, "Idempotency-Key", "k")...)
	b.batches.ends(d.ID, run.Succeeded)
	for _, path := range []string{path, batchPath + "k"} {
		problem(t, b.ask(t, http.MethodGet, path+"/results", http.NoBody, shop...), http.StatusNotFound, "not_found")
		problem(t, b.ask(t, http.MethodPost, path+"/cancel", http.NoBody, shop...), http.StatusNotFound, "not_found")
	}
	require.Empty(t, b.batches.cancels)
	require.Equal(t, http.StatusOK, b.ask(t, http.MethodGet, path+"/results", http.NoBody, ops...).StatusCode)
}

// Results that cannot be read to their end are not taken for all of them.
func TestResultsThatBreakOff(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	path, d := b.begun(t, "", 3)
	b.batches.ends(d.ID, run.Succeeded)
	require.NoError(t, b.store.Close())
	problem(t, b.ask(t, http.MethodGet, path+"/results", http.NoBody), http.StatusServiceUnavailable, "unavailable")
}

// away is a store that has no longer what was put there last.
type away struct {
	store.Store

	key string
}

func (s away) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if key == s.key {
		return nil, errors.New("no connection")
	}
	return s.Store.Get(ctx, key)
}

func TestResultsThatBreakOffHalfway(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	path, d := b.begun(t, "", 6)
	b.succeed(t, &d, task.Output{"text": strings.Repeat("x", 50_000)})
	b.batches.ends(d.ID, run.Succeeded)
	b.Open(Services{Executor: b.executor, Types: b.gates, Store: away{b.store, d.Folder + "/results/1"}, Batches: b.batches})
	conn := b.raw(t, "GET "+path+"/results HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotEmpty(t, text)
	require.Error(t, resp.Body.Close())
}

func TestResultsOnTheirWayAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	path, d := b.begun(t, "", 1)
	b.batches.ends(d.ID, run.Succeeded)
	for range resultsAtOnce {
		b.results <- struct{}{}
	}
	problem(t, b.ask(t, http.MethodGet, path+"/results", http.NoBody), http.StatusTooManyRequests, "busy")
	<-b.results
	require.Equal(t, http.StatusOK, b.ask(t, http.MethodGet, path+"/results", http.NoBody).StatusCode)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	path, d := b.begun(t, "", 1)
	a := b.ask(t, http.MethodPost, path+"/cancel?reason="+url.QueryEscape("wrong file"), http.NoBody)
	require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
	require.Equal(t, run.Cancelling, decode[batch.Document](t, a).Status)
	require.Equal(t, path, a.Header.Get("Location"))
	require.Equal(t, [][3]string{{d.ID, "http@127.0.0.1", "wrong file"}}, b.batches.cancels)

	problem(t, b.ask(t, http.MethodPost, path+"/cancel?why=x", http.NoBody), http.StatusBadRequest, "bad_request")
	problem(t, b.ask(t, http.MethodPost, path+"/cancel?reason="+strings.Repeat("x", maxReason+1), http.NoBody), http.StatusBadRequest, "bad_request")
	problem(t, b.ask(t, http.MethodPost, batchPath+"none/cancel", http.NoBody), http.StatusNotFound, "not_found")

	b.batches.cancelErr = errors.New("no connection")
	problem(t, b.ask(t, http.MethodPost, path+"/cancel", http.NoBody), http.StatusServiceUnavailable, "unavailable")

	// It ends just then.
	ended := d
	ended.Status = run.Succeeded
	b.batches.cancelErr, b.batches.ended = serviceerror.NewNotFound("it has completed"), &ended
	a = b.ask(t, http.MethodPost, path+"/cancel", http.NoBody)
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Equal(t, run.Succeeded, decode[batch.Document](t, a).Status)
	// Or had ended before.
	before := len(b.batches.cancels)
	require.Equal(t, http.StatusOK, b.ask(t, http.MethodPost, path+"/cancel", http.NoBody).StatusCode)
	require.Len(t, b.batches.cancels, before)
}
