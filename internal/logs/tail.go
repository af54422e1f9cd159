package logs

import (
	"bytes"
	"unicode/utf8"
)

const (
	tailSize  = 4 << 10
	tailLines = 20
)

// tail keeps the end of what is added to it.
type tail struct{ b []byte }

func (t *tail) add(p []byte) {
	if len(p) > tailSize {
		p = p[len(p)-tailSize:]
	}
	if len(t.b)+len(p) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	t.b = append(t.b, p...)
}

// text is the end as people read it: whole lines where it can be, valid UTF-8.
func (t *tail) text() []byte {
	b := lastBytes(t.b, tailSize)
	if i := bytes.IndexByte(b, '\n'); len(b) < len(t.b) && i >= 0 && i < len(b)-1 {
		b = b[i+1:]
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	start := len(b)
	for range tailLines {
		start = bytes.LastIndexByte(b[:start], '\n')
		if start < 0 {
			break
		}
	}
	return lastBytes(bytes.ToValidUTF8(b[start+1:], []byte("\uFFFD")), tailSize)
}

// lastBytes is the end of b, of n bytes at most, that does not start within a
// character.
func lastBytes(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	b = b[len(b)-n:]
	for i := range min(utf8.UTFMax, len(b)) {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}
