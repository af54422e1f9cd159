package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"belay.run/internal/spec"
	"belay.run/internal/tree"
)

// format is the value of -o.
type format string

const (
	formatText format = "text"
	formatJSON format = "json"
)

var _ pflag.Value = (*format)(nil)

// String is the flag's text.
func (f *format) String() string { return string(*f) }

// Type is shown in the help.
func (f *format) Type() string { return "text|json" }

// Set accepts text and json only.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatText, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("%q is not an output format: text or json", s)
}

// outputFlag gives a command -o.
func outputFlag(cmd *cobra.Command) *format {
	f := formatText
	cmd.Flags().VarP(&f, "output", "o", "text for people, json for programs")
	// The only error is an unknown flag name.
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return &f
}

// wantsJSON looks for -o json in arguments that could not be parsed, so that
// even the error about them is JSON.
func wantsJSON(args []string) bool {
	for i, a := range args {
		switch {
		case a == "--":
			return false
		case a == "-o=json" || a == "-ojson" || a == "--output=json":
			return true
		case (a == "-o" || a == "--output") && i+1 < len(args) && args[i+1] == "json":
			return true
		}
	}
	return false
}

// writeJSON prints one document, indented for the person who looks at it.
func writeJSON(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("writing the JSON document: %w", err)
	}
	return nil
}

// writeJSONLine prints one document of a stream of them.
func writeJSONLine(w io.Writer, doc any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("writing a JSON line: %w", err)
	}
	return nil
}

// errorDoc is how an error looks under -o json.
type errorDoc struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// report shows why a command ended, unless it has shown that itself.
func report(opts *Options, name string, err *ExitError, asJSON bool) {
	if err.Err == nil {
		return
	}
	if asJSON {
		doc := errorDoc{Error: errorBody{Code: err.Code, Message: err.Error(), Hint: err.Hint}}
		// An error of standard output itself has no better place to go.
		_ = writeJSON(opts.Out, doc)
		return
	}
	text := indent(err.Error())
	if invalid, ok := errors.AsType[*spec.InvalidError](err); ok {
		// What cannot be written here shows in the exit code.
		_ = invalid.Render(opts.Err, styleOf(opts.Err).Colour)
		text = counted(invalid.Count, "error")
	}
	text = name + ": " + text + "\n"
	if err.Hint != "" {
		text += "  " + indent(err.Hint) + "\n"
	}
	_, _ = io.WriteString(opts.Err, text) // as above
}

// indent moves the lines after the first under it, and makes each safe to show.
func indent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = tree.Clean(lines[i])
	}
	return strings.Join(lines, "\n  ")
}
