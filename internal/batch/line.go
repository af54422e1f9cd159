package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"belay.run/internal/task"
)

const (
	// maxID bounds the id of a task, maxTaskKey its key, maxTimeout its timeout.
	maxID      = 200
	maxTaskKey = 1000
	maxTimeout = 10 * time.Minute
	// mostPriority and its negative bound a priority.
	mostPriority = 100
)

// Preparer checks tasks, as a registry of their types does.
type Preparer interface {
	Prepare(t task.Task) (task.Job, error)
}

// Line is a task as a file has it, or a request.
type Line struct {
	ID       *string         `json:"id"`
	Type     string          `json:"type"`
	With     json.RawMessage `json:"with"`
	Key      *string         `json:"key"`
	Priority int             `json:"priority"`
	Timeout  string          `json:"timeout"`
}

// lineHas is what a line may have, for people.
const lineHas = "a task has id, type, with, key, priority and timeout"

// parseLine reads a line of the file. A task without an id has its line's
// number.
func parseLine(text []byte, number int) (task.Task, error) {
	var l Line
	if err := Decode(text, &l, lineHas); err != nil {
		return task.Task{}, err
	}
	t, err := l.Task(strconv.Itoa(number))
	if err != nil && l.ID != nil && *l.ID == "" {
		err = fmt.Errorf("%w; leave it out to have the line's number", err)
	}
	return t, err
}

// Decode reads one JSON object, such as a Line. Its error is for people; has says
// what the object may have.
func Decode(text []byte, into any, has string) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return badJSON(err, has)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("expected one JSON object, found more after it")
	}
	return nil
}

// Task is the task of a line; one without an id has that one.
func (l *Line) Task(id string) (task.Task, error) {
	t := task.Task{ID: id, Type: l.Type, With: l.With, Priority: l.Priority}
	if l.ID != nil {
		t.ID = *l.ID
	}
	if l.Key != nil {
		t.Key = *l.Key
	}
	switch {
	case t.ID == "" || len(t.ID) > maxID:
		return t, fmt.Errorf("id: expected 1 to %d bytes, found %d", maxID, len(t.ID))
	case l.Type == "":
		return t, errors.New(`type: is missing; such as {"type": "http", "with": {"url": "https://…"}}`)
	case l.Key != nil && (t.Key == "" || len(t.Key) > maxTaskKey): // an empty one would silently block nothing
		return t, fmt.Errorf("key: expected 1 to %d bytes, found %d", maxTaskKey, len(t.Key))
	case l.Priority < -mostPriority || l.Priority > mostPriority:
		return t, fmt.Errorf("priority: expected %d to %d, found %d", -mostPriority, mostPriority, l.Priority)
	}
	return t, readTimeout(&t, l.Timeout)
}

func readTimeout(t *task.Task, text string) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > maxTimeout {
		return fmt.Errorf("timeout: expected a duration of at most %s, such as 5s, found %q", maxTimeout, text)
	}
	t.Timeout = d
	return nil
}

// badJSON says in words what is wrong with a line.
func badJSON(err error, has string) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		field := strings.TrimPrefix(kind.Field, "Line.") // where it is embedded
		return fmt.Errorf("%s: expected %s, found %s", field, wordFor(kind.Type.Kind().String()), kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("expected a JSON object, found %s", kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("is no JSON at byte %d: %w", syntax.Offset, err)
	case errors.Is(err, io.EOF):
		return errors.New("expected a JSON object, found nothing")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON object does not end")
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return fmt.Errorf("unknown field %s: %s", name, has)
	}
	return err
}

func wordFor(kind string) string {
	if kind == "int" {
		return "a whole number"
	}
	return "text"
}
