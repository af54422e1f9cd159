package activities

import (
	"strings"
	"sync"
)

// maxSaid is how much of what a command said last its error keeps.
const maxSaid = 2 << 10

// tail keeps the end of what is written to it, which may be from several sides.
type tail struct {
	most int // bytes

	mu   sync.Mutex
	text []byte
}

// Write keeps p, or the end of it.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - t.most; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text)), "?")
}

// said is what was said, as it stands at the end of an error.
func (t *tail) said() string {
	text := t.String()
	if text == "" {
		return ""
	}
	return "; it said: " + text
}
