package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"belay.run/internal/batch"
	"belay.run/internal/store"
	"belay.run/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// known checks tasks by their type only.
type known struct{}

func (known) Prepare(t task.Task) (task.Job, error) {
	if t.Type != "noop" && t.Type != "http" {
		return nil, fmt.Errorf("type %q is not known", t.Type)
	}
	return nil, nil //nolint:nilnil // nobody runs it
}

const folder = "batches/b"

func openStore(t testing.TB) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func pack(t testing.TB, st store.Store, text string, size int) (batch.Packed, error) {
	t.Helper()
	return batch.Pack(t.Context(), strings.NewReader(text), st, folder, size, known{})
}

func keys(t testing.TB, st store.Store) []string {
	t.Helper()
	var out []string
	for info, err := range st.List(t.Context(), "") {
		require.NoError(t, err)
		out = append(out, info.Key)
	}
	slices.Sort(out)
	return out
}

func noops(n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(`{"type":"noop"}` + "\n")
	}
	return b.String()
}

func ref() batch.Ref {
	return batch.Ref{ID: "acme/web/batch/b", Folder: folder, Tenant: "acme", Project: "web"}
}

func TestPack(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	packed, err := pack(t, st, `{"id":"a","type":"noop","with":{"x":1},"key":"k","priority":-3,"timeout":"1500ms"}

{"type":"http"}`+"\r\n"+`{"id":"c","type":"noop"}`, 2)
	require.NoError(t, err)
	require.Equal(t, batch.Packed{Total: 3, Types: map[string]int{"noop": 2, "http": 1}}, packed)
	require.Equal(t, []string{folder + "/tasks/0", folder + "/tasks/1"}, keys(t, st))

	first := batch.ChunkOf(ref(), 0, 2, 3)
	got, err := batch.Load(t.Context(), st, &first)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, got.Lines)
	require.Equal(t, task.Task{
		ID: "a", Type: "noop", With: json.RawMessage(`{"x":1}`), Key: "k", Priority: -3, Timeout: 1500 * time.Millisecond,
		Origin: task.Origin{
			Tenant: "acme", Project: "web", Run: "acme/web/batch/b", Node: "a",
			IdempotencyKey: batch.IdempotencyKey("acme/web/batch/b", "a"),
		},
	}, got.Tasks[0])
	require.Equal(t, "3", got.Tasks[1].ID, "the number of its line")
	last := batch.ChunkOf(ref(), 1, 2, 3)
	require.Equal(t, "tasks 3–3", last.String())
	got, err = batch.Load(t.Context(), st, &last)
	require.NoError(t, err)
	require.Equal(t, "c", got.Tasks[0].ID)

	require.NoError(t, st.Delete(t.Context(), folder+"/tasks/1"))
	_, err = batch.Load(t.Context(), st, &last)
	require.ErrorIs(t, err, batch.ErrDamaged)
	last.Tasks = 5
	_, err = pack(t, st, noops(1), 1)
	require.NoError(t, err)
	last.Index = 0
	_, err = batch.Load(t.Context(), st, &last)
	require.ErrorIs(t, err, batch.ErrDamaged)
}

func TestBadLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{":                                "the JSON object does not end",
		"nonsense":                         "is no JSON at byte 2: invalid character 'o' in literal null (expecting 'u')",
		"[]":                               "expected a JSON object, found array",
		`{"type":"noop"} {}`:               "expected one JSON object, found more after it",
		`{"type":"noop","extra":{}}`:       `unknown field "extra": a task has id, type, with, key, priority and timeout`,
		`{}`:                               "type: is missing",
		`{"type":7}`:                       "type: expected text, found number",
		`{"type":"noop","id":7}`:           "id: expected text, found number",
		`{"type":"noop","id":""}`:          "id: expected 1 to 200 bytes, found 0; leave it out",
		`{"type":"nope"}`:                  `type "nope" is not known`,
		`{"type":"noop","timeout":5}`:      "timeout: expected text, found number",
		`{"type":"noop","timeout":"5"}`:    `timeout: expected a duration of at most 10m0s, such as 5s, found "5"`,
		`{"type":"noop","timeout":"-1s"}`:  "timeout: expected a duration",
		`{"type":"noop","priority":101}`:   "priority: expected -100 to 100, found 101",
		`{"type":"noop","priority":"low"}`: "priority: expected a whole number, found string",
		`{"type":"noop","key":"` + strings.Repeat("k", 1001) + `"}`:           "key: expected 1 to 1000 bytes, found 1001",
		`{"type":"noop","key":""}`:                                            "key: expected 1 to 1000 bytes, found 0",
		`{"type":"noop","with":"` + strings.Repeat("x", batch.MaxLine) + `"}`: "is longer than 65535 bytes",
		`{"type":"noop","id":"1"}`:                                            `id "1": line 1 has it already`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			st := openStore(t)
			_, err := pack(t, st, noops(3)+text+"\n"+noops(3), 1)
			var invalid *batch.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, 1, invalid.Count)
			require.Equal(t, 4, invalid.Errors[0].Line)
			require.True(t, strings.HasPrefix(invalid.Errors[0].Message, want), invalid.Errors[0].Message)
			require.Empty(t, keys(t, st), "nothing is left in the store")
		})
	}
}

func TestManyBadLinesAreCountedAndTheFirstTold(t *testing.T) {
	t.Parallel()
	_, err := pack(t, openStore(t), strings.Repeat("no\n", 1000)+noops(2), 10)
	var invalid *batch.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, 1000, invalid.Count)
	require.Len(t, invalid.Errors, 50)
	require.ErrorContains(t, err, "line 1: ")

	_, err = pack(t, openStore(t), "\n \n", 10)
	require.ErrorContains(t, err, "there is no task")
}

func TestAChunkThatIsTooLarge(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	line := `{"type":"noop","with":"` + strings.Repeat("x", batch.MaxLine-100) + "\"}\n"
	_, err := pack(t, st, strings.Repeat(line, 260), 300)
	require.ErrorContains(t, err, "try smaller chunks")
	require.Empty(t, keys(t, st))
}

func TestAReaderThatFails(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader(noops(10)), errReader{broken})
	_, err := batch.Pack(t.Context(), r, st, folder, 2, known{})
	require.ErrorIs(t, err, broken)
	require.Empty(t, keys(t, st))
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// chunk packs so many tasks into one chunk.
func chunk(t testing.TB, st store.Store, n int) batch.Chunk {
	t.Helper()
	_, err := pack(t, st, noops(n), n)
	require.NoError(t, err)
	return batch.ChunkOf(ref(), 0, n, n)
}

func result(id string, status task.Status) task.Result {
	return task.Result{ID: id, Type: "noop", Status: status}
}

func TestJournal(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	c := chunk(t, st, 4)
	j, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.False(t, j.Doubts())
	require.Equal(t, 4, j.Missing())
	require.NoError(t, j.Take(t.Context()))
	require.NoError(t, j.Record(t.Context(), []batch.Entry{
		{Place: 2, Result: result("3", task.Succeeded)}, {Place: 0, Result: result("1", task.Failed)}, {Place: 1, Back: true},
	}))

	again, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true}, again.Doubt, "one was given back, two have results")
	require.Equal(t, task.Succeeded, again.Results[2].Status)
	require.NoError(t, again.Take(t.Context()))

	// Who was taken for dead can add nothing any more, and finds out.
	err = j.Record(t.Context(), []batch.Entry{{Place: 3, Result: result("4", task.Succeeded)}})
	require.ErrorIs(t, err, batch.ErrTaken)
	require.ErrorIs(t, j.Take(t.Context()), batch.ErrTaken)
	require.NoError(t, again.Record(t.Context(), []batch.Entry{{Place: 3, Result: result("4", task.Duplicate)}}))
	third, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.Equal(t, batch.Counts{Succeeded: 1, Failed: 1, Duplicate: 1, NotStarted: 1}, third.Tally().Counts)
	require.Equal(t, []bool{false, true, false, false}, third.Doubt)
}

// unsure is a store whose answer to an Append is lost after it was done.
type unsure struct {
	store.Store

	mu   sync.Mutex
	lose int
}

func (s *unsure) Append(ctx context.Context, key string, off int64, p []byte) error {
	err := s.Store.Append(ctx, key, off, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lose > 0 && err == nil {
		s.lose--
		return errors.New("no answer")
	}
	return err
}

func TestARecordWhoseAnswerWasLostIsNotWrittenTwice(t *testing.T) {
	t.Parallel()
	st := &unsure{Store: openStore(t)}
	c := chunk(t, st, 2)
	j, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.NoError(t, j.Take(t.Context()))
	st.lose = 1
	entries := []batch.Entry{{Place: 0, Result: result("1", task.Succeeded)}}
	tries := 0
	require.NoError(t, batch.Patiently(t.Context(), func(error) { tries++ }, func(ctx context.Context) error { return j.Record(ctx, entries) }))
	require.Equal(t, 1, tries)
	require.NoError(t, j.Record(t.Context(), []batch.Entry{{Place: 1, Result: result("2", task.Succeeded)}}))
	again, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.Zero(t, again.Missing())
}

func TestALineThatWasCutOffRecordsNothing(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	c := chunk(t, st, 2)
	torn := "\ntaken\n0 {\"id\":\"1\",\"status\":\"succeeded\"}\n1 {\"id\":\"2\",\"sta"
	require.NoError(t, st.Append(t.Context(), folder+"/results/0", 0, []byte(torn)))
	j, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, j.Doubt)
	require.NoError(t, j.Take(t.Context()))
	require.NoError(t, j.Record(t.Context(), []batch.Entry{{Place: 1, Result: result("2", task.Failed)}}))
	j, err = batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.Equal(t, batch.Counts{Succeeded: 1, Failed: 1}, j.Tally().Counts)
}

func TestResultsAreInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	st := openStore(t)
	_, err := pack(t, st, noops(5), 2)
	require.NoError(t, err)
	for k, order := range [][]int{{1, 0}, {1}} { // of the third chunk nothing is recorded
		c := batch.ChunkOf(ref(), k, 2, 5)
		j, err := batch.ReadJournal(t.Context(), st, &c)
		require.NoError(t, err)
		require.NoError(t, j.Take(t.Context()))
		for _, place := range order {
			require.NoError(t, j.Record(t.Context(), []batch.Entry{{Place: place, Result: result(fmt.Sprint(c.First+place+1), task.Succeeded)}}))
		}
	}
	d := batch.Document{ID: "b", Folder: folder, Total: 5, ChunkSize: 2}
	var out bytes.Buffer
	require.NoError(t, batch.WriteResults(t.Context(), st, &d, &out))
	want := `{"id":"1","type":"noop","status":"succeeded"}
{"id":"2","type":"noop","status":"succeeded"}
{"id":"3","type":"noop","status":"not_started"}
{"id":"4","type":"noop","status":"succeeded"}
{"id":"5","type":"noop","status":"not_started"}
`
	require.Equal(t, strings.Split(want, "\n"), strings.Split(out.String(), "\n"))

	require.NoError(t, batch.Remove(t.Context(), st, folder))
	out.Reset()
	require.ErrorIs(t, batch.WriteResults(t.Context(), st, &d, &out), batch.ErrGone)
	require.Empty(t, out.String())
}

func TestCountsAlwaysAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		statuses := []task.Status{task.Succeeded, task.Failed, task.Duplicate, task.Skipped, "odd"}
		var all batch.Tally
		total := 0
		for range rapid.IntRange(0, 5).Draw(t, "chunks") {
			var one batch.Tally
			n := rapid.IntRange(0, 40).Draw(t, "tasks")
			for i := range n {
				r := task.Result{ID: fmt.Sprint(i), Status: rapid.SampledFrom(statuses).Draw(t, "status"), Retried: rapid.Bool().Draw(t, "retried")}
				one.Add(i, &r)
			}
			require.Equal(t, n, one.Sum())
			require.LessOrEqual(t, one.Retried, n)
			all.Plus(&one)
			total += n
		}
		more := rapid.IntRange(0, 100).Draw(t, "more")
		started := time.Now()
		d := batch.Document{Total: total + more, StartedAt: &started}
		d.Take(&all, started.Add(time.Second))
		require.Equal(t, d.Total, d.Succeeded+d.Failed+d.Duplicate+d.Skipped+d.NotStarted)
		require.LessOrEqual(t, len(d.Failures), 10)
		require.InDelta(t, float64(d.Ended()), d.Rate, 0.001)
	})
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	var tally batch.Tally
	tally.Add(1, &task.Result{Status: task.Failed, Error: task.Failf("invalid", "%s", "x"+strings.Repeat("ü", 200))})
	require.True(t, strings.HasSuffix(tally.Failures[0].Message, "ü…"), tally.Failures[0].Message)
	require.LessOrEqual(t, len(tally.Failures[0].Message), 303)
}
