package types

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// expectParams are what an answer's body is to hold.
func expectParams() []task.Param {
	return []task.Param{
		{Name: "expect", Kind: task.Texts, Doc: "Texts that the answer's body is to hold, each of them."},
		{
			Name: "expect_json", Kind: task.Table,
			Doc: "What the answer, which is JSON, is to have: texts by path, such as `data.items.0.state: ready`.",
		},
	}
}

// expect is what an answer's body is to hold.
type expect struct {
	texts []string
	json  map[string]string
}

func readExpect(a *task.Args) expect {
	e := expect{texts: a.Texts("expect"), json: a.Table("expect_json")}
	if slices.Contains(e.texts, "") {
		a.Wrong("expect", "it holds an empty text, which every answer has")
	}
	return e
}

func (e expect) empty() bool { return len(e.texts) == 0 && len(e.json) == 0 }

// check returns a failure unless the answer is as expected. It shows nothing of
// the answer: what a target says of itself may be anything.
func (e expect) check(of string, a answer) error {
	for _, text := range e.texts {
		if !bytes.Contains(a.body, []byte(text)) {
			return task.Failf(run.TriggerExitCode, "%s: the %d bytes of its answer do not hold the expected %.64q", of, a.bytes, text)
		}
	}
	if len(e.json) == 0 {
		return nil
	}
	var root any
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	if err := dec.Decode(&root); err != nil {
		return task.Failf(run.TriggerExitCode, "%s: the %d bytes of its answer are no JSON", of, a.bytes)
	}
	for _, path := range slices.Sorted(maps.Keys(e.json)) {
		value, at := follow(root, path)
		if at != "" {
			return task.Failf(run.TriggerExitCode, "%s: its answer has no %.64s, of the path %.64s", of, at, path)
		}
		if got := scalar(value); got != e.json[path] {
			return task.Failf(run.TriggerExitCode, "%s: %.64s of its answer is not the expected %.64q", of, path, e.json[path])
		}
	}
	return nil
}

// follow is the value at a path, or the first name of it that is not there.
func follow(value any, path string) (found any, missing string) {
	for name := range strings.SplitSeq(path, ".") {
		ok := false
		switch v := value.(type) {
		case map[string]any:
			value, ok = v[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v) {
				value, ok = v[i], true
			}
		}
		if !ok {
			return nil, name
		}
	}
	return value, ""
}

// scalar is a value as a person writes it, "" for a list or an object.
func scalar(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case map[string]any, []any:
		return ""
	default:
		return fmt.Sprint(v)
	}
}
