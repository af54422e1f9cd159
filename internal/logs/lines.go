package logs

import (
	"bytes"
	"cmp"
	"io"
	"strconv"
)

// LineOptions says how records become text.
type LineOptions struct {
	// Nodes puts "[node] " before each line, with the attempt where it is not
	// the first, so that lines of different nodes never mix. Without it the
	// bytes are passed on as they come.
	Nodes bool
	// Safe takes out what would confuse a terminal: control characters and
	// escape sequences other than colours.
	Safe bool
}

// maxLine is how much of a line waits for its end. With Nodes, a longer one is
// shown in pieces, each on a line of its own.
const maxLine = 64 << 10

// Lines writes records as text. One goroutine at a time may use it.
type Lines struct {
	w    io.Writer
	o    LineOptions
	open map[source]*line
	// order lists the keys of open as they came.
	order []source
}

type source struct {
	node    string
	attempt int
	stream  Stream
}

// line is what has come of a line so far, and what cleans it.
type line struct {
	prefix []byte
	text   []byte
	clean  cleaner
}

// NewLines writes to w.
func NewLines(w io.Writer, o LineOptions) *Lines {
	return &Lines{w: w, o: o, open: map[source]*line{}}
}

// Write takes the next record.
func (l *Lines) Write(r Record) error {
	s := l.lineOf(r)
	data := r.Data
	if l.o.Safe {
		data = s.clean.clean(nil, data)
	}
	if !l.o.Nodes {
		_, err := l.w.Write(data)
		return err
	}
	var out []byte
	for ended := true; ended; {
		var text []byte
		text, data, ended = bytes.Cut(data, []byte("\n"))
		for len(text) > 0 {
			if len(s.text) == maxLine {
				out = s.appendTo(out)
			}
			n := min(len(text), maxLine-len(s.text))
			s.text = append(s.text, text[:n]...)
			text = text[n:]
		}
		if ended {
			out = s.appendTo(out)
		}
	}
	if len(out) == 0 {
		return nil
	}
	_, err := l.w.Write(out)
	return err
}

func (l *Lines) lineOf(r Record) *line {
	key := source{r.Node, r.Attempt, r.Stream}
	s := l.open[key]
	if s == nil {
		prefix := "[" + cmp.Or(r.Node, "pipeline")
		if r.Attempt > 1 {
			prefix += " #" + strconv.Itoa(r.Attempt)
		}
		s = &line{prefix: []byte(prefix + "] ")}
		l.open[key] = s
		l.order = append(l.order, key)
	}
	return s
}

// appendTo adds the line to out, ended, and empties it. A carriage return takes
// a terminal back to the start of the line, over the prefix, so that comes again
// after it.
func (s *line) appendTo(out []byte) []byte {
	text, ending := s.text, "\n"
	if cut, found := bytes.CutSuffix(text, []byte("\r")); found {
		text, ending = cut, "\r\n"
	}
	out = append(out, s.prefix...)
	for {
		before, after, found := bytes.Cut(text, []byte("\r"))
		out = append(out, before...)
		if !found {
			break
		}
		out = append(append(out, '\r'), s.prefix...)
		text = after
	}
	s.text = s.text[:0]
	if cap(s.text) > 4<<10 {
		s.text = nil
	}
	return append(out, ending...)
}

// Flush writes lines that have not ended, at the end of the log. With Nodes it
// ends them.
func (l *Lines) Flush() error {
	for _, key := range l.order {
		s := l.open[key]
		if len(s.text) == 0 {
			continue
		}
		if _, err := l.w.Write(s.appendTo(nil)); err != nil {
			return err
		}
	}
	clear(l.open)
	l.order = nil
	return nil
}
