package task

import "encoding/json"

// plainText is a parameter that is plain text.
type plainText struct{ name, value string }

// plainTexts reads an object of a few plain texts, as nearly all tasks are given,
// several times faster than a decoder does. With false it is something else, which
// is for a decoder to read: nothing here decides that anything is wrong.
func plainTexts(with json.RawMessage) (texts []plainText, ok bool) {
	const few = 8
	s := plainScanner{text: with}
	if !s.next('{') {
		return nil, false
	}
	texts = make([]plainText, 0, 2)
	for !s.next('}') {
		if len(texts) == few || len(texts) > 0 && !s.next(',') {
			return nil, false
		}
		name, ok := s.plain()
		if !ok || !s.next(':') {
			return nil, false
		}
		value, ok := s.plain()
		if !ok {
			return nil, false
		}
		texts = append(texts, plainText{name, value})
	}
	s.space()
	return texts, s.at == len(s.text)
}

type plainScanner struct {
	text []byte
	at   int
}

func (s *plainScanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// next passes over c where it comes next, after space.
func (s *plainScanner) next(c byte) bool {
	s.space()
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// plain reads a string of printable ASCII in which nothing is escaped.
func (s *plainScanner) plain() (string, bool) {
	if !s.next('"') {
		return "", false
	}
	for i, c := range s.text[s.at:] {
		switch {
		case c == '"':
			text := string(s.text[s.at : s.at+i])
			s.at += i + 1
			return text, true
		case c < ' ' || c > '~' || c == '\\':
			return "", false
		}
	}
	return "", false
}
