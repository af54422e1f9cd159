package types

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// configSync brings a configuration to where it is used, when it has changed.
type configSync struct{ tools Tools }

// modeUsual is that of a file which is new: others are to read it.
const modeUsual fs.FileMode = 0o644

func (configSync) Name() string { return "config_sync" }

func (configSync) Doc() string {
	return "Copies a configuration from a URL or a file to a file, a key of Redis or a URL, only where it differs, and as a whole."
}

func (configSync) Params() []task.Param {
	return []task.Param{
		{Name: "source", Kind: task.Text, Required: true, Doc: "Where it comes from: a URL of http or https, or the whole path of a file."},
		{
			Name: "target", Kind: task.Text, Required: true,
			Doc: "Where it goes: the whole path of a file, `redis://host:6379/0` with `key`, or a URL, which is asked by GET and set by PUT.",
		},
		{Name: "key", Kind: task.Text, Doc: "The key in Redis. Belay's own, which begin with belay:, are refused."},
		{Name: "mode", Kind: task.Text, Doc: "The permissions of a file that is new, such as \"0640\"; 0644 by default. One that is there keeps its own."},
		{Name: "max_bytes", Kind: task.Number, Doc: "How large it may be: 1048576 by default, at most 16777216."},
		{Name: "source_secret", Kind: task.Secret, Doc: "The secret that is sent to the source as a bearer token."},
		{Name: "target_secret", Kind: task.Secret, Doc: "The secret that is sent to the target: as a bearer token, to Redis as the password."},
	}
}

func (configSync) Outputs() []task.Field {
	return []task.Field{
		{Name: "changed", Kind: task.Truth, Always: true, Doc: "Whether the target was written."},
		{Name: "sha256", Kind: task.Text, Always: true, Doc: "The hash of what the target holds."},
		{Name: "bytes", Kind: task.Number, Always: true, Doc: "How long that is."},
		{Name: "not_modified", Kind: task.Truth, Always: true, Doc: "Whether the source said by its ETag that it is the same, and sent nothing."},
	}
}

func (s configSync) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(s.Params(), with)
	most := a.Number("max_bytes", bodyUsual, 1, fileMost)
	j := &syncJob{tools: s.tools}
	if text := a.Text("source", ""); isURL(text) {
		src := &httpSource{tools: s.tools, call: call{
			method: "GET", url: readURL(a, "source", "http", "https"), auth: bearer(a, "source_secret"),
			redirects: redirectsUsual, most: most, keep: true,
		}}
		j.from, j.fromHost = src, httpAddress(src.call.url)
	} else {
		j.from = &fileSource{tools: s.tools, path: readPath(a, "source"), most: most}
		if a.Has("source_secret") {
			a.Wrong("source_secret", "a file needs none")
		}
	}
	j.to, j.toHost = s.destination(a, most)
	return j, a.Err()
}

func (s configSync) destination(a *task.Args, most int64) (destination, string) {
	text := a.Text("target", "")
	scheme, _, _ := strings.Cut(text, "://")
	isRedis := scheme == "redis" || scheme == "rediss"
	if a.Has("key") && !isRedis {
		a.Wrong("key", "it belongs to a target of redis://")
	}
	if a.Has("mode") && isURL(text) {
		a.Wrong("mode", "it belongs to a target that is a file")
	}
	switch {
	case isRedis:
		r := readRedisTarget(a, s.tools, most)
		return r, r.addr
	case isURL(text):
		h := &httpTarget{tools: s.tools, call: call{
			method: "GET", url: readURL(a, "target", "http", "https"), auth: bearer(a, "target_secret"), most: most, keep: true,
		}}
		return h, httpAddress(h.call.url)
	}
	if a.Has("target_secret") {
		a.Wrong("target_secret", "a file needs none")
	}
	mode := modeUsual
	if a.Has("mode") {
		n, err := strconv.ParseUint(a.Text("mode", ""), 8, 32)
		if err != nil || n > 0o777 || n&0o400 == 0 {
			a.Wrong("mode", "found %.16q, expected such as \"0640\"", a.Text("mode", ""))
		}
		mode = fs.FileMode(n)
	}
	return &fileTarget{tools: s.tools, path: readPath(a, "target"), mode: mode, most: most}, ""
}

func isURL(text string) bool { return strings.Contains(text, "://") }

// note is what a target remembers of its source: as long as the target holds
// what it was written then, an ETag that still fits says that all is as it was.
type note struct {
	Source string `json:"source"`
	ETag   string `json:"etag"`
	SHA256 string `json:"sha256"`
}

// state is what a target holds.
type state struct {
	content []byte
	found   bool
	note    note
	// etag is the target's own, where it has such.
	etag string
}

// destination is where a configuration goes. What it held is read from itself
// each time, so that a change by somebody else is seen, and no worker need
// remember anything.
type destination interface {
	read(ctx context.Context, o task.Origin) (state, error)
	// write puts content in the place of what was read, whole or not at all.
	write(ctx context.Context, o task.Origin, was state, content []byte) error
	// remember keeps the note, where the target has a place for it.
	remember(ctx context.Context, o task.Origin, n note) error
}

// source is where a configuration comes from.
type source interface {
	// id is the same for the same source, and says nothing of it.
	id() string
	// fetch reads it. Where its ETag is still the one that is given it may say
	// so, and send nothing.
	fetch(ctx context.Context, o task.Origin, etag string) (fetched, error)
}

type fetched struct {
	content []byte
	etag    string
	same    bool
}

type syncJob struct {
	tools            Tools
	from             source
	to               destination
	fromHost, toHost string
}

// Target is the source, or, of a file, where it goes.
func (j *syncJob) Target() string {
	if j.fromHost != "" {
		return j.fromHost
	}
	return j.toHost
}

func (j *syncJob) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	was, err := j.to.read(ctx, o)
	if err != nil {
		return nil, j.blame(err, j.toHost)
	}
	hash, etag := hashOf(was.content), ""
	if was.found && was.note.SHA256 == hash && was.note.Source == j.from.id() {
		etag = was.note.ETag
	}
	got, err := j.from.fetch(ctx, o, etag)
	if err != nil {
		return nil, j.blame(err, j.fromHost)
	}
	out := task.Output{"changed": false, "not_modified": got.same, "sha256": hash, "bytes": len(was.content)}
	if got.same {
		return out, nil
	}
	if !was.found || !bytes.Equal(was.content, got.content) {
		if err := j.to.write(ctx, o, was, got.content); err != nil {
			return nil, j.blame(err, j.toHost)
		}
		out["changed"], out["sha256"], out["bytes"] = true, hashOf(got.content), len(got.content)
	}
	if got.etag == "" || got.etag == was.note.ETag && etag != "" {
		return out, nil
	}
	err = j.to.remember(ctx, o, note{Source: j.from.id(), ETag: got.etag, SHA256: hashOf(got.content)})
	return out, j.blame(err, j.toHost)
}

// blame takes the fault from a failure of another host than the task's target,
// whose circuit breaker must not open for it.
func (j *syncJob) blame(err error, host string) error {
	if f, ok := errors.AsType[*task.Failure](err); ok && host != j.Target() {
		f.Fault = false
	}
	return err
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// fileSource is a file.
type fileSource struct {
	tools Tools
	path  string
	most  int64
}

func (s *fileSource) id() string { return hashOf([]byte(s.path)) }

func (s *fileSource) fetch(context.Context, task.Origin, string) (fetched, error) {
	f, err := s.tools.openFile("source", s.path)
	if err != nil {
		return fetched{}, err
	}
	defer f.close()
	content, err := f.read(s.most)
	if err != nil {
		return fetched{}, task.Failf(run.TriggerExitCode, "source: %s", err)
	}
	return fetched{content: content}, nil
}
