package config

import (
	"fmt"
	"strings"
)

// Markdown is the table of settings as docs/configuration.md shows it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| in the file | flag | variable | default | what it does |\n| --- | --- | --- | --- | --- |\n")
	for _, s := range settings() {
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s |\n", s.Name, s.Flag(), s.Env, s.markdownDefault(), cell(s.Help))
	}
	return b.String()
}

func (s Setting) markdownDefault() string {
	switch {
	case s.Derived != "":
		return cell(s.Derived)
	case s.Default != "":
		return "`" + cell(strings.ReplaceAll(s.Default, ",", ", ")) + "`"
	}
	return "none"
}

// cell keeps text from breaking out of its cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(text)
}
