package secret

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"strings"
)

const (
	// piece is how a longer pattern is cut: matches that touch are masked as
	// one, so the whole is still masked, and a part of it that long is too.
	piece = 64
	// manyForms is up to which size lines are looked for in all forms, and
	// base64 at every possible break of a line.
	manyForms = 16 << 10
)

// plain reports whether s is one character repeated.
func plain(s string) bool { return strings.Count(s, s[:1]) == len(s) }

// patternsOf lists what to look for to find text, which is trimmed and long
// enough, in any form.
func patternsOf(text string) []string {
	p := formsOf(text)
	lines := strings.Split(text, "\n")
	if len(lines) == 1 {
		return p
	}
	for _, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case len(line) < minPattern || plain(line):
			// Too short or too plain to be masked by itself.
		case len(text) <= manyForms:
			p = append(p, formsOf(line)...)
		default:
			p = append(p, cut(line)...)
		}
	}
	return p
}

func formsOf(text string) []string {
	var p []string
	for _, form := range []func(string) []string{literal, hexForms, urlForms, jsonForms, htmlForms, shellForms} {
		for _, s := range form(text) {
			p = append(p, cut(s)...)
		}
	}
	p = append(p, base64Forms(text, base64.RawStdEncoding)...)
	return append(p, base64Forms(text, base64.RawURLEncoding)...)
}

// cut makes patterns of a string that may be longer than one can be.
func cut(s string) []string {
	var p []string
	for len(s) > maxPattern {
		if !plain(s[:piece]) {
			p = append(p, s[:piece])
		}
		s = s[piece:]
	}
	if plain(s) {
		return p
	}
	return append(p, s)
}

func literal(text string) []string { return []string{text} }

func hexForms(text string) []string {
	s := hex.EncodeToString([]byte(text))
	return []string{s, strings.ToUpper(s)}
}

// base64Forms are the parts of any encoding of text with something before and
// after it that depend on text alone. Longer ones are windows over it, at every
// fourth character, where encoders break lines.
func base64Forms(text string, enc *base64.Encoding) []string {
	const (
		window = 16
		short  = 24
	)
	stride := 4
	if len(text) > manyForms {
		stride = window
	}
	var p []string
	// Before is how many bytes stand before text, modulo 3; skip how many
	// characters depend on them.
	for before, skip := range []int{0, 2, 3} {
		all := enc.EncodeToString(append(make([]byte, before), text...))
		end := (before + len(text)) * 8 / 6 // from here, what follows counts too
		padding := strings.Repeat("=", (4-len(all)%4)%4)
		if end-skip <= short {
			p = append(p, all[skip:end], all[skip:], all[skip:]+padding)
			continue
		}
		p = append(p, all[skip:skip+window], all[end-window:end], all[end-window:], all[end-window:]+padding)
		for i := stride; i+window <= end; i += stride {
			p = append(p, all[i:i+window])
		}
	}
	return p
}

// urlForms percent-encode text as the common encoders do, which differ in what
// they leave as it is and in how they write a space and hexadecimal digits.
func urlForms(text string) []string {
	encoders := []struct {
		safe string
		plus bool
	}{
		{"-_.~", true},                  // Go's QueryEscape, Python's quote_plus
		{"-_.~", false},                 // RFC 3986, curl
		{"-_.~/", false},                // Python's quote
		{"-_.~$&+=:@", false},           // Go's PathEscape
		{"-_.!~*'()", false},            // JavaScript's encodeURIComponent
		{"-_.*", true},                  // forms, Java's URLEncoder
		{"-_.!~*'();/?:@&=+$,#", false}, // JavaScript's encodeURI
	}
	var p []string
	for _, e := range encoders {
		p = append(p, percent(text, e.safe, e.plus, "0123456789ABCDEF"), percent(text, e.safe, e.plus, "0123456789abcdef"))
	}
	return p
}

func percent(text, safe string, plus bool, digits string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case alphanumeric(c) || strings.IndexByte(safe, c) >= 0:
			b.WriteByte(c)
		case c == ' ' && plus:
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// htmlForms escape text for HTML and for XML.
func htmlForms(text string) []string {
	s := html.EscapeString(text)
	return []string{
		s,
		strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;").Replace(s),
		strings.NewReplacer("&#34;", "&quot;").Replace(s),
		strings.NewReplacer("&#34;", `"`, "&#39;", "'").Replace(s),
	}
}

// shellForms quote text as shells do when they trace what they run, and as
// printf %q does.
func shellForms(text string) []string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < 0x80 && !alphanumeric(c) && strings.IndexByte("_@%+=:,./-", c) < 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(text[i])
	}
	return []string{
		b.String(),
		strings.ReplaceAll(text, "'", `'\''`),
		strings.ReplaceAll(text, "'", `'"'"'`),
		strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(text),
		strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text),
	}
}
