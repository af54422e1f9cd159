package tree

import (
	"strings"

	"belay.run/internal/run"
)

// Style is how a run is drawn.
type Style struct {
	// Width and Height are the room there is; 0 means no bound.
	Width, Height int
	// Colour allows escape sequences in lines.
	Colour bool
	// ASCII leaves out every symbol that a terminal without UTF-8 cannot show.
	ASCII bool
	// Tick moves the sign of what is running; any growing number does.
	Tick int
}

// colour is the number of an SGR sequence.
type colour string

const (
	none   colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	blue   colour = "34"
)

// paint wraps s in a colour.
func (st Style) paint(c colour, s string) string {
	if !st.Colour || c == none || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// spinner is drawn for what runs.
const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

// symbol is the sign of a state.
func (st Style) symbol(s run.Status) string {
	if st.ASCII {
		return asciiSymbol(s)
	}
	switch s {
	case run.Pending:
		return "·"
	case run.Running:
		frames := []rune(spinner)
		return string(frames[st.Tick%len(frames)])
	case run.Cancelling:
		return "◌"
	case run.Succeeded:
		return "✓"
	case run.Failed, run.TimedOut:
		return "✗"
	case run.Cancelled:
		return "⊘"
	case run.Skipped:
		return "-"
	case run.Duplicate:
		return "≡"
	}
	return "?"
}

func asciiSymbol(s run.Status) string {
	switch s {
	case run.Pending:
		return "."
	case run.Running:
		return ">"
	case run.Cancelling:
		return "~"
	case run.Succeeded:
		return "+"
	case run.Failed, run.TimedOut:
		return "x"
	case run.Cancelled:
		return "!"
	case run.Skipped:
		return "-"
	case run.Duplicate:
		return "="
	}
	return "?"
}

// ellipsis, bar and such are the signs beside the states.
func (st Style) ellipsis() string {
	if st.ASCII {
		return "..."
	}
	return "…"
}

func (st Style) bar() string {
	if st.ASCII {
		return "|"
	}
	return "│"
}

// fit makes text safe for the terminal that the style describes.
func (st Style) fit(s string, n int) string {
	s = cut(s, n)
	if st.ASCII {
		s = strings.ReplaceAll(s, "…", "~")
	}
	return s
}

// statusColour is the colour of a state.
func statusColour(s run.Status) colour {
	switch s {
	case run.Succeeded, run.Duplicate:
		return green
	case run.Failed, run.TimedOut:
		return red
	case run.Cancelled, run.Cancelling:
		return yellow
	case run.Running:
		return blue
	case run.Pending, run.Skipped:
		return dim
	}
	return none
}

// PaintStatus colours text by a state.
func (st Style) PaintStatus(s run.Status, text string) string {
	return st.paint(statusColour(s), text)
}
