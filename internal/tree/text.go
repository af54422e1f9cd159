package tree

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// tabWidth is what a tab in a log line is shown as.
const tabWidth = 4

// Clean makes text that somebody else wrote safe to show: escape sequences are
// taken out, and control characters, marks that turn the direction of writing,
// and broken UTF-8 become U+FFFD.
func Clean(s string) string { return clean(s, false) }

// CleanKeepingColour is Clean, except that colours stay.
func CleanKeepingColour(s string) string { return clean(s, true) }

func clean(s string, keepColour bool) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			n := escapeLen(s[i:])
			if seq := s[i : i+n]; keepColour && isColour(seq) {
				b.WriteString(seq)
			}
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '\t':
			b.WriteString(strings.Repeat(" ", tabWidth))
		case harmless(r) && (r != utf8.RuneError || n > 1):
			b.WriteRune(r)
		default:
			b.WriteRune(utf8.RuneError)
		}
	}
	return b.String()
}

// plain reports whether s is printable ASCII, as nearly everything is.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// harmless reports whether a terminal draws r and does nothing else with it.
// Format characters are not: among them are those that reverse text, and those
// that are not seen at all. The joiner of emoji is the one in common use.
func harmless(r rune) bool {
	const zeroWidthJoiner, nextLine = 0x200d, 0x85
	if r == zeroWidthJoiner {
		return true
	}
	return r != nextLine && !unicode.IsControl(r) && !unicode.Is(unicode.Cf, r) &&
		!unicode.Is(unicode.Zl, r) && !unicode.Is(unicode.Zp, r)
}

// escapeLen is the length of the escape sequence at the start of s: of a
// control sequence up to its final byte, of a string (title, link) up to its
// terminator, else two bytes. One that is cut off takes all that is left.
func escapeLen(s string) int {
	if len(s) < 2 {
		return len(s)
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
			if s[i] < 0x20 || s[i] > 0x3f {
				return i
			}
		}
		return len(s)
	case ']', 'P', '_', '^', 'X':
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	if s[1] >= utf8.RuneSelf || s[1] < ' ' {
		return 1
	}
	return 2
}

// isColour reports whether an escape sequence only sets how text looks.
func isColour(seq string) bool {
	return len(seq) > 2 && seq[1] == '[' && seq[len(seq)-1] == 'm'
}

// LastOverwrite is what a terminal shows of a line in which a progress bar drew
// over itself with carriage returns: its last state.
func LastOverwrite(s string) string {
	s = strings.TrimRight(s, "\r\n")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		return s[i+1:]
	}
	return s
}

// runeWidth is how many columns r takes.
func runeWidth(r rune) int {
	if r < 0x7f {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	case width.Neutral, width.EastAsianAmbiguous, width.EastAsianNarrow, width.EastAsianHalfwidth:
		return 1
	}
	return 1
}

// columns is how many columns s takes; it holds no escape sequence.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cut shortens s to at most n columns, the last of them an ellipsis.
func cut(s string, n int) string {
	if n <= 0 {
		return ""
	}
	if len(s) <= n || columns(s) <= n {
		return s
	}
	var b strings.Builder
	used := 0
	for _, r := range s {
		w := runeWidth(r)
		if used+w > n-1 {
			break
		}
		b.WriteRune(r)
		used += w
	}
	return b.String() + "…"
}

// Duration is a length of time as people read it: 0.4s, 12.3s, 1m04s, 2h05m.
func Duration(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
