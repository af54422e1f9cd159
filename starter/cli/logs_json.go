package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"belay.run/internal/logs"
)

// maxJSONLine is how much of a line stands in one document; the rest follows in
// others.
const maxJSONLine = 1 << 20

// logLine is a line of log under -o json.
type logLine struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Attempt int       `json:"attempt"`
	Stream  string    `json:"stream"`
	Text    string    `json:"text"`
	// Bytes is the line itself where it is no valid UTF-8, in base64.
	Bytes []byte `json:"bytes,omitempty"`
	// Partial says that the line goes on in the next document of its step, or
	// that it never ended.
	Partial bool `json:"partial,omitempty"`
}

// jsonLogs writes log lines as JSON: as lines of their own, or as one document
// {"lines": […]}, which is written as it goes so that it may be of any size.
type jsonLogs struct {
	w      io.Writer
	stream bool
	parts  map[source]*bytes.Buffer
	wrote  bool
}

func newJSONLogs(w io.Writer, stream bool) *jsonLogs {
	return &jsonLogs{w: w, stream: stream, parts: map[source]*bytes.Buffer{}}
}

// Write takes the next record.
func (j *jsonLogs) Write(r logs.Record) error {
	src := sourceOf(r)
	part := j.parts[src]
	if part == nil {
		part = &bytes.Buffer{}
		j.parts[src] = part
	}
	for piece := range bytes.Lines(r.Data) {
		for part.Len()+len(piece) > maxJSONLine {
			n := maxJSONLine - part.Len()
			part.Write(piece[:n])
			piece = piece[n:]
			if err := j.line(src, r.Time, part, true); err != nil {
				return err
			}
		}
		part.Write(piece)
		if piece[len(piece)-1] == '\n' {
			part.Truncate(part.Len() - 1)
			if err := j.line(src, r.Time, part, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// line writes what is in part and empties it.
func (j *jsonLogs) line(src source, at time.Time, part *bytes.Buffer, partial bool) error {
	l := logLine{
		Time: at.UTC(), Node: src.node, Attempt: src.attempt, Stream: streamName(src.stream),
		Text: string(bytes.ToValidUTF8(part.Bytes(), []byte("\uFFFD"))), Partial: partial,
	}
	if !utf8.Valid(part.Bytes()) {
		l.Bytes = bytes.Clone(part.Bytes())
	}
	part.Reset()
	if j.stream {
		return writeJSONLine(j.w, l)
	}
	text, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("writing a log line: %w", err)
	}
	before := ",\n  "
	if !j.wrote {
		j.wrote, before = true, "{\"lines\": [\n  "
	}
	if _, err := fmt.Fprintf(j.w, "%s%s", before, text); err != nil {
		return fmt.Errorf("writing a log line: %w", err)
	}
	return nil
}

// Flush writes the lines that have not ended, and closes the document.
func (j *jsonLogs) Flush() error {
	var left []source
	for src, part := range j.parts {
		if part.Len() > 0 {
			left = append(left, src)
		}
	}
	slices.SortFunc(left, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.stream, b.stream))
	})
	for _, src := range left {
		if err := j.line(src, time.Now(), j.parts[src], true); err != nil {
			return err
		}
	}
	if j.stream {
		return nil
	}
	end := "\n]}\n"
	if !j.wrote {
		end = "{\"lines\": []}\n"
	}
	if _, err := io.WriteString(j.w, end); err != nil {
		return fmt.Errorf("writing the end of the log: %w", err)
	}
	return nil
}

func streamName(s logs.Stream) string {
	switch s {
	case logs.Stdout:
		return "stdout"
	case logs.Stderr:
		return "stderr"
	case logs.System:
		return "system"
	}
	return "unknown"
}
