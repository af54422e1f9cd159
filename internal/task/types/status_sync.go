package types

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"belay.run/internal/task"
)

// statusSync tells a forge how a commit fares.
type statusSync struct{ tools Tools }

var commitRE = regexp.MustCompile(`^[0-9a-fA-F]{7,64}$`)

// descriptionMost is what GitHub takes; the others take more.
const descriptionMost = 140

// forges are what our states are called elsewhere.
var forges = map[string]map[string]string{ // read only
	"github": {"pending": "pending", "running": "pending", "success": "success", "failure": "failure", "error": "error", "cancelled": "error"},
	"gitlab": {"pending": "pending", "running": "running", "success": "success", "failure": "failed", "error": "failed", "cancelled": "canceled"},
}

func (statusSync) Name() string { return "status_sync" }

func (statusSync) Doc() string {
	return "Sets the status of a commit on GitHub, on GitLab, or by a POST of JSON anywhere else. To set it again is no mistake."
}

func (statusSync) Params() []task.Param {
	return []task.Param{
		{Name: "provider", Kind: task.Text, Required: true, Enum: []string{"github", "gitlab", "http"}, Doc: "Who is told."},
		{Name: "commit", Kind: task.Text, Required: true, Doc: "The commit, by 7 to 64 hexadecimal digits."},
		{Name: "state", Kind: task.Text, Required: true, Enum: []string{"pending", "running", "success", "failure", "error", "cancelled"}, Doc: "How it fares. GitHub has no running, which is pending there, and no cancelled, which is error."},
		{Name: "repository", Kind: task.Text, Doc: "For github `owner/name`, for gitlab the project's number or path; both need it."},
		{Name: "api", Kind: task.Text, Doc: "For github and gitlab: the API of one's own, such as `https://git.example/api/v4`."},
		{Name: "url", Kind: task.Text, Doc: "For http: where `{commit, state, context, description, target_url}` is posted."},
		{Name: "context", Kind: task.Text, Doc: "Which of the commit's statuses it is; belay by default."},
		{Name: "description", Kind: task.Text, Doc: "A sentence beside it; what is longer than 140 characters is cut."},
		{Name: "target_url", Kind: task.Text, Doc: "Where a person reads more."},
		{Name: "secret", Kind: task.Secret, Doc: "The token that is sent along."},
	}
}

func (statusSync) Outputs() []task.Field {
	return []task.Field{
		{Name: "state", Kind: task.Text, Always: true, Doc: "The state as the other side calls it."},
		{Name: "status", Kind: task.Number, Always: true, Doc: "The answer's status."},
		{Name: "latency_ms", Kind: task.Number, Always: true, Doc: "How long it took to the answer's end."},
	}
}

func (s statusSync) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(s.Params(), with)
	provider, commit, state := a.Text("provider", ""), a.Text("commit", ""), a.Text("state", "")
	onlyOf(a, provider, map[string][]string{"github": {"repository", "api"}, "gitlab": {"repository", "api"}, "http": {"url"}})
	if a.Has("commit") && !commitRE.MatchString(commit) {
		a.Wrong("commit", "found %.64q, expected 7 to 64 hexadecimal digits", commit)
	}
	j := &statusJob{
		tools: s.tools, provider: provider, state: state,
		call: call{method: http.MethodPost, auth: bearer(a, "secret"), most: bodyUsual, keep: provider == "gitlab", header: http.Header{}},
	}
	if theirs, ok := forges[provider]; ok {
		j.state = theirs[state]
	}
	j.call.url = statusURL(a, provider, commit)
	body := map[string]string{"state": j.state, "description": cut(a.Text("description", "")), "target_url": a.Text("target_url", "")}
	if body["target_url"] != "" {
		readURL(a, "target_url", "http", "https")
	}
	name := a.Text("context", "belay")
	switch provider {
	case "gitlab":
		body["name"] = name
	case "http":
		body["commit"], body["context"] = commit, name
	default:
		body["context"] = name
	}
	j.call.body, _ = json.Marshal(body) //nolint:errchkjson // texts by name cannot fail
	j.call.header["Content-Type"] = []string{"application/json"}
	return j, a.Err()
}

// statusURL is where a status goes.
func statusURL(a *task.Args, provider, commit string) *url.URL {
	if provider == "http" && !a.Has("url") {
		a.Wrong("url", "provider http needs it")
	}
	if provider != "github" && provider != "gitlab" {
		return readURL(a, "url", "http", "https")
	}
	repository := a.Text("repository", "")
	if repository == "" || strings.ContainsAny(repository, " ?#%\\") || slices.Contains(strings.Split(repository, "/"), "..") ||
		provider == "github" && strings.Count(repository, "/") != 1 {
		a.Wrong("repository", "found %.64q, expected owner/name", repository)
	}
	api, path := "https://api.github.com", "/repos/"+repository+"/statuses/"+commit
	if provider == "gitlab" {
		api, path = "https://gitlab.com/api/v4", "/projects/"+url.PathEscape(repository)+"/statuses/"+commit
	}
	base := checkURL(a, "api", a.Text("api", api), "http", "https")
	u := *base
	u.Path, u.RawPath = "", ""
	full, err := url.Parse(u.String() + strings.TrimRight(base.EscapedPath(), "/") + path)
	if err != nil || base.RawQuery != "" || base.Fragment != "" {
		a.Wrong("api", "expected a URL without a query")
		return base
	}
	return full
}

// cut shortens a description to what fits.
func cut(s string) string {
	if utf8.RuneCountInString(s) <= descriptionMost {
		return s
	}
	return string([]rune(s)[:descriptionMost-1]) + "…"
}

type statusJob struct {
	tools    Tools
	provider string
	state    string
	call     call
}

func (j *statusJob) Target() string { return httpAddress(j.call.url) }

func (j *statusJob) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	a, err := j.call.do(ctx, j.tools, o)
	if err != nil {
		return nil, err
	}
	out := task.Output{"state": j.state, "status": a.status, "latency_ms": a.took.Milliseconds()}
	if j.already(a) {
		return out, nil
	}
	return out, j.call.expected(a, okay())
}

// already reports whether GitLab refuses a status since it is that already, as
// after an attempt whose answer was lost.
func (j *statusJob) already(a answer) bool {
	return j.provider == "gitlab" && a.status == http.StatusBadRequest &&
		bytes.Contains(a.body, []byte("Cannot transition status")) && bytes.Contains(a.body, []byte("from :"+j.state+" "))
}
