package tree

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// Screen redraws a block of lines in place on a terminal. Each drawing is one
// write, inside which alone the cursor is hidden and lines do not wrap: however
// the process ends, the terminal is as it was.
type Screen struct {
	w     io.Writer
	drawn []int // columns of each line that stands on the terminal
	buf   bytes.Buffer
}

// Control sequences of a drawing.
const (
	beginUpdate = "\x1b[?2026h\x1b[?25l\x1b[?7l"
	endUpdate   = "\x1b[?7h\x1b[?25h\x1b[?2026l"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
)

// NewScreen draws on w, which is a terminal.
func NewScreen(w io.Writer) *Screen {
	return &Screen{w: w}
}

// Draw replaces what was drawn before by lines. The terminal is width columns
// wide now; it may have been another width before.
func (s *Screen) Draw(lines []string, width int) error {
	s.buf.Reset()
	s.buf.WriteString(beginUpdate)
	s.up(width)
	drawn := s.drawn[:0]
	for _, l := range lines {
		s.buf.WriteString(l)
		s.buf.WriteString(eraseLine)
		s.buf.WriteString("\r\n")
		drawn = append(drawn, columns(uncoloured(l)))
	}
	s.buf.WriteString(eraseBelow)
	s.buf.WriteString(endUpdate)
	s.drawn = drawn
	_, err := s.w.Write(s.buf.Bytes())
	return err
}

// Clear takes what was drawn away, so that something else may be printed.
func (s *Screen) Clear(width int) error {
	return s.Draw(nil, width)
}

// Forget leaves what was drawn where it is: the next drawing goes below.
func (s *Screen) Forget() {
	s.drawn = nil
}

// up moves to the first line drawn. A terminal that became narrower has wrapped
// the lines that no longer fit.
func (s *Screen) up(width int) {
	rows := 0
	for _, c := range s.drawn {
		rows++
		if width > 0 && c > width {
			rows += (c - 1) / width
		}
	}
	s.buf.WriteByte('\r')
	if rows > 0 {
		fmt.Fprintf(&s.buf, "\x1b[%dA", rows)
	}
}

// uncoloured takes the escape sequences out of a line.
func uncoloured(s string) string {
	if !bytes.ContainsRune([]byte(s), 0x1b) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			i += escapeLen(s[i:])
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		out = append(out, s[i:i+n]...)
		i += n
	}
	return string(out)
}
