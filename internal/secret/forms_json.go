package secret

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonForms escape text as the common JSON encoders do, which differ in what
// they escape beyond what they must, and once more as JSON inside of JSON.
func jsonForms(text string) []string {
	least, ascii := jsonEscape(text, "", "%04x"), jsonEscape(text, "\x7f", "%04x")
	p := []string{
		least,
		jsonEscape(text, "<>&", "%04x"),        // Go
		ascii,                                  // Python and others
		jsonEscape(text, "\x7f<>&'+`", "%04X"), // .NET
		strings.ReplaceAll(least, "/", `\/`),   // PHP
		strings.ReplaceAll(ascii, "/", `\/`),
	}
	for _, s := range slices.Clip(p) {
		p = append(p, jsonEscape(s, "", "%04x"))
	}
	return p
}

// jsonEscape escapes what JSON demands, and the characters in extra, as \u and
// four digits in the format hex; \x7f in extra stands for all that is not ASCII.
func jsonEscape(text, extra, hex string) string {
	names := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
	ascii := strings.Contains(extra, "\x7f")
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case names[r] != "":
			b.WriteString(names[r])
		case r < ' ', r < utf8.RuneSelf && strings.ContainsRune(extra, r), r >= utf8.RuneSelf && ascii:
			units := utf16.AppendRune(nil, r)
			for _, u := range units {
				fmt.Fprintf(&b, `\u`+hex, u)
			}
		default:
			b.WriteString(text[i : i+size])
		}
	}
	return b.String()
}
