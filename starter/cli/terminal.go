package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"belay.run/internal/tree"
)

// terminal is where output goes, if a person looks at it right there.
type terminal struct {
	// size is how wide and high it is now; 0 where that is not known.
	size  func() (width, height int)
	style tree.Style
}

// terminalOf looks whether w is a terminal; nil where it is none.
func terminalOf(w io.Writer) *terminal {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &terminal{
		size: func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0, 0
			}
			return width, height
		},
		style: tree.Style{Colour: os.Getenv("NO_COLOR") == "", ASCII: !utf8Locale()},
	}
}

// redraws reports whether a terminal can move its cursor.
func (t *terminal) redraws() bool {
	return t != nil && os.Getenv("TERM") != "dumb"
}

// styleOf is how to write to w, without a bound on the room.
func styleOf(w io.Writer) tree.Style {
	t := terminalOf(w)
	if t == nil {
		return tree.Style{ASCII: !utf8Locale()}
	}
	st := t.style
	st.Colour = st.Colour && t.redraws()
	return st
}

// utf8Locale reports whether the locale takes symbols. One that is not set, as
// in most containers, says nothing about the terminal: nearly all do.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return true
}
