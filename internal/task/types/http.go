package types

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"belay.run/internal/task"
)

// httpType sends one request.
type httpType struct{ tools Tools }

func (httpType) Name() string { return "http" }

func (httpType) Doc() string {
	return "Sends one request over HTTP, and succeeds where the answer is as expected."
}

func (httpType) Params() []task.Param { return httpParams }

// httpParams are put together once, not for each task.
var httpParams = slices.Concat([]task.Param{
	{Name: "url", Kind: task.Text, Required: true, Doc: "Where to, of http or https."},
	{
		Name: "method", Kind: task.Text, Doc: "GET by default, POST where there is a body.",
		Enum: []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
	},
	{Name: "headers", Kind: task.Table, Doc: "Headers to send."},
	{Name: "body", Kind: task.Text, Doc: "What to send. Its Content-Type is application/json where it is JSON, else text/plain, unless `headers` say."},
	statusParam(),
}, expectParams(), authParams(), []task.Param{
	{Name: "redirects", Kind: task.Number, Doc: "How many redirects are followed, 5 by default, at most 10; with 0 a redirect is the answer."},
	{Name: "max_bytes", Kind: task.Number, Doc: "How large the answer may be: 1048576 by default, at most 67108864."},
}) // read only

// answerFields are what there is to say of an answer over HTTP.
func answerFields() []task.Field {
	return []task.Field{
		{Name: "status", Kind: task.Number, Always: true, Doc: "The answer's status."},
		{Name: "latency_ms", Kind: task.Number, Always: true, Doc: "How long it took to the answer's end."},
		{Name: "bytes", Kind: task.Number, Always: true, Doc: "How long the answer's body is."},
	}
}

func (httpType) Outputs() []task.Field { return answerFields() }

func (h httpType) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(h.Params(), with)
	j := &httpJob{
		tools: h.tools, want: readStatuses(a), expect: readExpect(a),
		call: call{
			url: readURL(a, "url", "http", "https"), header: readHeaders(a, "headers"), auth: readAuth(a),
			redirects: int(a.Number("redirects", redirectsUsual, 0, 10)),
			most:      a.Number("max_bytes", bodyUsual, 1, bodyMost),
		},
	}
	j.call.keep = !j.expect.empty()
	usual := http.MethodGet
	if a.Has("body") {
		usual = http.MethodPost
		j.call.body = []byte(a.Text("body", ""))
		contentType(j.call.header, j.call.body)
	}
	j.call.method = a.Text("method", usual)
	if a.Has("body") && safeMethod(j.call.method) {
		a.Wrong("body", "a request of %s has none", j.call.method)
	}
	if j.call.method == http.MethodHead && j.call.keep {
		a.Wrong("method", "the answer to HEAD has no body to expect anything of")
	}
	return j, a.Err()
}

// contentType says what a body is, where the headers do not.
func contentType(h http.Header, body []byte) {
	switch {
	case h["Content-Type"] != nil:
	case json.Valid(body):
		h["Content-Type"] = []string{"application/json"}
	default:
		h["Content-Type"] = []string{"text/plain; charset=utf-8"}
	}
}

type httpJob struct {
	tools  Tools
	call   call
	want   statuses
	expect expect
}

func (j *httpJob) Target() string { return httpAddress(j.call.url) }

func (j *httpJob) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	a, err := j.call.do(ctx, j.tools, o)
	if err != nil {
		return nil, err
	}
	if err := j.call.expected(a, j.want); err != nil {
		return a.output(), err
	}
	if j.expect.empty() {
		return a.output(), nil
	}
	return a.output(), j.expect.check(j.call.String(), a)
}

func (a answer) output() task.Output {
	return task.Output{"status": a.status, "latency_ms": a.took.Milliseconds(), "bytes": a.bytes}
}
