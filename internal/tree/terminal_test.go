package tree_test

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// terminal is as much of a terminal as the drawings use: it wraps, moves up,
// erases, and shows what a person would see.
type terminal struct {
	width    int
	x, y     int
	rows     [][]rune
	wraps    bool
	cursorOn bool
}

func newTerminal(width int) *terminal {
	return &terminal{width: width, wraps: true, cursorOn: true}
}

// Write takes output.
func (t *terminal) Write(p []byte) (int, error) {
	t.write(string(p))
	return len(p), nil
}

func (t *terminal) write(s string) {
	for len(s) > 0 {
		if seq, ok := strings.CutPrefix(s, "\x1b["); ok {
			end := strings.IndexFunc(seq, func(r rune) bool { return r >= '@' && r <= '~' })
			t.control(seq[:end], seq[end])
			s = seq[end+1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch r {
		case '\r':
			t.x = 0
		case '\n':
			t.y++
		default:
			t.put(r)
		}
	}
}

func (t *terminal) put(r rune) {
	w := 1
	if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
		w = 2
	}
	if t.x+w > t.width {
		if !t.wraps {
			return
		}
		t.x, t.y = 0, t.y+1
	}
	row := t.row(t.y)
	for len(*row) < t.x+w {
		*row = append(*row, ' ')
	}
	(*row)[t.x] = r
	t.x += w
}

func (t *terminal) row(y int) *[]rune {
	for len(t.rows) <= y {
		t.rows = append(t.rows, nil)
	}
	return &t.rows[y]
}

func (t *terminal) control(args string, final byte) {
	switch final {
	case 'A':
		n, _ := strconv.Atoi(args)
		t.y = max(t.y-n, 0)
	case 'K':
		row := t.row(t.y)
		*row = (*row)[:min(len(*row), t.x)]
	case 'J':
		row := t.row(t.y)
		*row = (*row)[:min(len(*row), t.x)]
		t.rows = t.rows[:t.y+1]
	case 'h', 'l':
		switch on := final == 'h'; args {
		case "?7":
			t.wraps = on
		case "?25":
			t.cursorOn = on
		}
	}
}

// narrow makes the terminal narrower: lines that no longer fit wrap.
func (t *terminal) narrow(width int) {
	var rows [][]rune
	y := t.y
	for i, row := range t.rows {
		wrapped := 1
		for len(row) > width {
			rows = append(rows, row[:width])
			row = row[width:]
			wrapped++
		}
		rows = append(rows, row)
		if i < t.y {
			y += wrapped - 1
		}
	}
	t.rows, t.width, t.y = rows, width, y
}

// text is what stands on the terminal.
func (t *terminal) text() string {
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
