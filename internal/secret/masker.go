package secret

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Masker replaces secrets by ***, in each of the forms in which they commonly
// turn up: as they are, each line of them, in base64 wherever they lie in what
// was encoded, in hexadecimal, and escaped for URLs, JSON, HTML or a shell. It
// is safe for concurrent use; a nil Masker masks nothing.
type Masker struct {
	find *automaton
}

// NewMasker builds a masker of values. It refuses with ErrTooShort one that is
// so short or so plain that masking it would garble everything else.
func NewMasker(values ...Value) (*Masker, error) {
	var patterns []string
	var errs []error
	for _, v := range values {
		text := strings.TrimSpace(v.Reveal())
		switch {
		case len(text) > maxSize:
			errs = append(errs, fmt.Errorf("secret %s: larger than %d bytes", v.Name(), maxSize))
		case len(text) < minPattern:
			errs = append(errs, fmt.Errorf("secret %s: %w: it has fewer than %d characters, so that masking it would garble the log",
				v.Name(), ErrTooShort, minPattern))
		case plain(text):
			errs = append(errs, fmt.Errorf("secret %s: %w: it is one character repeated, so that masking it would garble the log",
				v.Name(), ErrTooShort))
		default:
			patterns = append(patterns, patternsOf(text)...)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(patterns) == 0 {
		return nil, nil //nolint:nilnil // a nil Masker masks nothing
	}
	return &Masker{find: newAutomaton(patterns)}, nil
}

// String is s with every secret masked.
func (m *Masker) String(s string) string {
	if m == nil {
		return s
	}
	var b strings.Builder
	w := m.Writer(&b)
	// A strings.Builder takes everything.
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

// Contains reports whether a secret is in s, in any of its forms.
func (m *Masker) Contains(s string) bool {
	if m == nil {
		return false
	}
	at := int32(0)
	for i := range len(s) {
		at = m.find.next(at, s[i])
		if m.find.states[at].match > 0 {
			return true
		}
	}
	return false
}

// Writer masks what is written to it on its way to w, also what is split over
// writes. The last bytes are held back as long as they could be the start of a
// secret: until more comes, or Close, which does not close w. It is safe for
// concurrent use.
func (m *Masker) Writer(w io.Writer) io.WriteCloser {
	if m == nil {
		return passing{w}
	}
	return &maskWriter{find: m.find, w: w}
}

type passing struct{ io.Writer }

func (passing) Close() error { return nil }

// maskWriter runs the automaton over what is written. Held is the end of it
// that is, or may become, part of a match; every byte of it is known to be
// secret or not yet. All before it is decided and goes out.
type maskWriter struct {
	find *automaton
	w    io.Writer

	mu   sync.Mutex
	at   int32
	held []byte
	// secret marks the bytes of held that a match covers.
	secret []bool
	// hiding says that the last byte that went out was a secret's: what a run
	// of secrets leaves is one ***.
	hiding bool
	out    []byte
}

// outSize is how much a maskWriter collects before it writes.
const outSize = 64 << 10

func (m *maskWriter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(p); {
		if m.at == 0 {
			n := m.find.skip(p[i:min(i+outSize, len(p))])
			m.show(p[i : i+n])
			i += n
		}
		i += m.step(p[i], i)
		if len(m.out) >= outSize {
			if err := m.flush(); err != nil {
				return i, err
			}
		}
	}
	return len(p), m.flush()
}

// step takes the next byte, the one after done others of the same write, and
// returns how far to go on: 1, or less to look at bytes again from the root.
func (m *maskWriter) step(c byte, done int) int {
	before := m.find.states[m.at].depth
	m.at = m.find.next(m.at, c)
	now := &m.find.states[m.at]
	m.held = append(m.held, c)
	m.secret = append(m.secret, false)
	for i := len(m.secret) - int(now.match); i < len(m.secret); i++ {
		m.secret[i] = true
	}
	m.release(len(m.held) - int(now.depth))
	// The start that was followed is none. What little is held may be one, but
	// the filter knows better: let it look, if all of it is in this write.
	n := len(m.held)
	if now.depth > before || n == 0 || n >= minPattern || n > done || m.anySecret() {
		return 1
	}
	m.at, m.held, m.secret = 0, m.held[:0], m.secret[:0]
	return 1 - n
}

func (m *maskWriter) anySecret() bool {
	for _, s := range m.secret {
		if s {
			return true
		}
	}
	return false
}

// release lets the first n held bytes out, or *** for those that are secret.
func (m *maskWriter) release(n int) {
	for i := range n {
		if !m.secret[i] {
			m.show(m.held[i : i+1])
		} else if !m.hiding {
			m.out = append(m.out, hidden...)
			m.hiding = true
		}
	}
	m.held = append(m.held[:0], m.held[n:]...)
	m.secret = append(m.secret[:0], m.secret[n:]...)
}

func (m *maskWriter) show(p []byte) {
	if len(p) > 0 {
		m.out = append(m.out, p...)
		m.hiding = false
	}
}

func (m *maskWriter) flush() error {
	if len(m.out) == 0 {
		return nil
	}
	_, err := m.w.Write(m.out)
	m.out = m.out[:0]
	return err
}

// Close lets out what is held: no more comes that could make it a secret.
func (m *maskWriter) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(len(m.held))
	m.at = 0
	return m.flush()
}
