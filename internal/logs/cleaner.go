package logs

// cleaner takes out of a text what would make a terminal do anything but show
// characters: escape sequences other than colours, and control characters other
// than newline, carriage return and tab. The text may come in pieces. Bytes that
// are not UTF-8 are left as they are.
type cleaner struct {
	state cleanState
	// sequence is the escape sequence so far, kept while it may be a colour.
	sequence []byte
	// more is how many bytes of a UTF-8 character are still to come.
	more int
}

type cleanState uint8

const (
	ground   cleanState = iota
	escape              // after ESC
	control             // after ESC [
	text                // in a string such as a window title
	textEnd             // after ESC in such a string
	charset             // after ESC ( and the like, which one byte ends
	c1Second            // after 0xC2, which starts the control characters of C1
)

const (
	escByte = 0x1b
	belByte = 0x07
	// maxSequence is how long a colour may be.
	maxSequence = 64
)

// clean appends what may be shown of p to out.
func (c *cleaner) clean(out, p []byte) []byte {
	for _, b := range p {
		out = c.next(out, b)
	}
	return out
}

func (c *cleaner) next(out []byte, b byte) []byte {
	switch c.state {
	case escape:
		return c.afterEscape(out, b)
	case control:
		return c.inControl(out, b)
	case charset:
		c.state = ground
		return out
	case text:
		return c.inText(out, b)
	case textEnd:
		if b == '\\' {
			c.state = ground
			return out
		}
		c.state = text
		return c.inText(out, b)
	case c1Second:
		c.state = ground
		if 0x80 <= b && b < 0xa0 {
			return out
		}
		return c.inGround(append(out, 0xc2), b, 1)
	case ground:
	}
	return c.inGround(out, b, c.more)
}

// inGround takes a byte of ordinary text, of which more bytes may continue the
// character before.
func (c *cleaner) inGround(out []byte, b byte, more int) []byte {
	c.more = 0
	switch {
	case b == escByte:
		c.state, c.sequence = escape, append(c.sequence[:0], b)
		return out
	case b == '\n', b == '\r', b == '\t', b >= ' ' && b < 0x7f:
	case b < ' ', b == 0x7f:
		return out
	case b < 0xc0 && more > 0:
		c.more = more - 1
	case b < 0xa0: // a bare control character of C1
		return out
	case b == 0xc2:
		c.state = c1Second
		return out
	case b >= 0xf0:
		c.more = 3
	case b >= 0xe0:
		c.more = 2
	case b >= 0xc0:
		c.more = 1
	}
	return append(out, b)
}

func (c *cleaner) afterEscape(out []byte, b byte) []byte {
	switch {
	case b == '[':
		c.state, c.sequence = control, append(c.sequence, b)
	case b == ']', b == 'P', b == 'X', b == '^', b == '_':
		c.state = text
	case b >= ' ' && b < '0':
		c.state = charset
	case b == escByte:
	case b < ' ': // no sequence: the escape is dropped
		c.state = ground
		return c.inGround(out, b, 0)
	default:
		c.state = ground
	}
	return out
}

// inText waits for the end of a string: BEL, or ESC \, or the end of the line,
// so that one that was cut short hides no more than that.
func (c *cleaner) inText(out []byte, b byte) []byte {
	switch b {
	case belByte:
		c.state = ground
	case escByte:
		c.state = textEnd
	case '\n':
		c.state = ground
		return append(out, b)
	}
	return out
}

func (c *cleaner) inControl(out []byte, b byte) []byte {
	switch {
	case b >= '0' && b <= ';' && len(c.sequence) < maxSequence:
		c.sequence = append(c.sequence, b)
	case b >= ' ' && b <= '?':
		c.sequence = append(c.sequence[:0], 0) // no colour any more
	case b == 'm' && c.sequence[0] == escByte:
		c.state = ground
		return append(append(out, c.sequence...), b)
	case b >= '@' && b <= '~':
		c.state = ground
	default: // broken off
		c.state = ground
		return c.inGround(out, b, 0)
	}
	return out
}
