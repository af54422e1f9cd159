package task_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/task"
)

func params() []task.Param {
	return []task.Param{
		{Name: "url", Kind: task.Text, Required: true, Doc: "where"},
		{Name: "method", Kind: task.Text, Enum: []string{"GET", "POST"}},
		{Name: "count", Kind: task.Number},
		{Name: "quick", Kind: task.Truth},
		{Name: "after", Kind: task.Duration},
		{Name: "status", Kind: task.Texts},
		{Name: "headers", Kind: task.Table},
		{Name: "token", Kind: task.Secret},
	}
}

func TestArgsReadEveryKind(t *testing.T) {
	t.Parallel()
	a := task.ReadArgs(params(), json.RawMessage(`{"url":"u","method":"POST","count":5,"quick":true,"after":"1m30s",
		"status":[200,"2xx"],"headers":{"A":"b"},"token":"T"}`))
	require.Equal(t, "u", a.Text("url", ""))
	require.Equal(t, "POST", a.Text("method", "GET"))
	require.EqualValues(t, 5, a.Number("count", 1, 0, 10))
	require.True(t, a.Truth("quick", false))
	require.Equal(t, 90*time.Second, a.Duration("after", 0, 0, time.Hour))
	require.Equal(t, []string{"200", "2xx"}, a.Texts("status"))
	require.Equal(t, map[string]string{"A": "b"}, a.Table("headers"))
	require.Equal(t, "T", a.Text("token", ""))
	require.NoError(t, a.Err())

	a = task.ReadArgs(params(), json.RawMessage(`{"url":"u","count":"5","quick":"true","status":204}`))
	require.EqualValues(t, 5, a.Number("count", 1, 0, 10))
	require.True(t, a.Truth("quick", false))
	require.Equal(t, []string{"204"}, a.Texts("status"))
	require.Equal(t, "GET", a.Text("method", "GET"))
	require.False(t, a.Has("method"))
	require.NoError(t, a.Err())
}

func TestArgsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for with, want := range map[string]string{
		``:                            "url: it is required: where",
		`{}`:                          "url: it is required: where",
		`[]`:                          "with: found a list, expected an object of parameters",
		`"x"`:                         `with: found "x", expected an object of parameters`,
		`null`:                        "with: found null, expected an object of parameters",
		`{"url":"u"`:                  "with: it is no JSON: EOF",
		`{"url":"u"} {}`:              "with: found more after the object of parameters",
		`{"url":"u"}}`:                "with: found more after the object of parameters",
		`{"url":"u","url":"v"}`:       "url: it is given twice",
		`{"url":5}`:                   "url: found the number 5, expected text: put it in quotes",
		`{"url":null}`:                "url: found null, expected text",
		`{"url":"u","methd":"GET"}`:   "methd: not a parameter; did you mean method?",
		`{"url":"u","method":"get"}`:  `method: found "get", did you mean GET?`,
		`{"url":"u","method":"BREW"}`: `method: found "BREW", expected GET or POST`,
		`{"url":"u","count":1.5}`:     "count: found the number 1.5, expected a whole number",
		`{"url":"u","count":11}`:      "count: found 11, expected 0 to 10",
		`{"url":"u","count":9999999999999999999}`: "count: found the number 9999999999999999999, expected a whole number",
		`{"url":"u","quick":1}`:                   "quick: found the number 1, expected true or false",
		`{"url":"u","after":5}`:                   "after: found the number 5, expected a duration such as 90s, 5m or 1h30m",
		`{"url":"u","after":"-5s"}`:               `after: found "-5s", expected a duration such as 90s, 5m or 1h30m`,
		`{"url":"u","after":"2h"}`:                "after: found 2h0m0s, expected 0s to 1h0m0s",
		`{"url":"u","status":[[1]]}`:              "status: found a list, expected a list of texts",
		`{"url":"u","headers":["a"]}`:             "headers: found a list, expected texts by name",
		`{"url":"u","headers":{"A":1}}`:           "headers: A: found the number 1, expected text: put it in quotes",
		`{"url":"u","token":""}`:                  "token: it is empty, expected the name of a secret",
		`{"count":"x","url":1}`:                   `count: found "x", expected a whole number; url: found the number 1, expected text: put it in quotes`,
	} {
		a := task.ReadArgs(params(), json.RawMessage(with))
		a.Number("count", 1, 0, 10)
		a.Duration("after", 0, 0, time.Hour)
		require.EqualError(t, a.Err(), want, with)
	}
}

func TestArgsKnowOnlyTheParametersOfTheType(t *testing.T) {
	t.Parallel()
	a := task.ReadArgs(params(), json.RawMessage(`{"url":"u"}`))
	require.Empty(t, a.Text("uri", ""))
	require.ErrorContains(t, a.Err(), "uri")
}

func FuzzReadArgs(f *testing.F) {
	f.Add(`{"url":"u","headers":{"A":"b"}}`)
	f.Add(`{"url":"u","status":[1,"2"]}`)
	f.Fuzz(func(t *testing.T, with string) {
		a := task.ReadArgs(params(), json.RawMessage(with))
		if a.Err() == nil {
			require.True(t, json.Valid([]byte(with)))
			require.True(t, a.Has("url"))
		}
	})
}

type named struct{ name string }

func (n named) Name() string                            { return n.name }
func (named) Doc() string                               { return "" }
func (named) Params() []task.Param                      { return nil }
func (named) Outputs() []task.Field                     { return nil }
func (named) Prepare(json.RawMessage) (task.Job, error) { return nil, errors.New("no") }

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := task.NewRegistry(named{"http"}, named{"alpha"})
	require.Equal(t, []task.Type{named{"alpha"}, named{"http"}}, r.Types())
	_, ok := r.Get("http")
	require.True(t, ok)
	_, ok = r.Get("htp")
	require.False(t, ok)
	_, err := r.Prepare(task.Task{Type: "htp"})
	require.EqualError(t, err, `type "htp": not known; did you mean http?`)
	_, err = r.Prepare(task.Task{Type: "weather"})
	require.EqualError(t, err, `type "weather": not known; there are alpha and http`)
	_, err = r.Prepare(task.Task{Type: "http"})
	require.EqualError(t, err, "http: no")
	_, err = task.NewRegistry().Prepare(task.Task{Type: "http"})
	require.ErrorContains(t, err, "there are none")
}
