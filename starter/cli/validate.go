package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"belay.run/internal/spec"
)

// validateDoc is what validate prints under -o json.
type validateDoc struct {
	Files []validateFile `json:"files"`
}

type validateFile struct {
	Path     string    `json:"path"`
	Errors   []problem `json:"errors"`
	Warnings []problem `json:"warnings"`
}

// problem is one thing that is wrong; line and column are 0 where it has no
// place in the file.
type problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func validateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Show every error and warning of pipeline files; needs no server",
		Args:  args(cobra.MinimumNArgs(1)),
	}
	cmd.ValidArgsFunction = yamlFiles
	out := outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, paths []string) error {
		return a.validate(paths, *out)
	}
	return cmd
}

func (a *app) validate(paths []string, out format) error {
	doc := validateDoc{Files: make([]validateFile, 0, len(paths))}
	broken := false
	for _, path := range paths {
		report := a.check(path)
		broken = broken || len(report.Errors) > 0
		doc.Files = append(doc.Files, validateFile{
			Path: path, Errors: problems(report.Errors), Warnings: problems(report.Warnings),
		})
		if out == formatText {
			if err := a.printReport(path, report); err != nil {
				return err
			}
		}
	}
	if out == formatJSON {
		if err := writeJSON(a.Out, doc); err != nil {
			return err
		}
	}
	if broken {
		return &ExitError{Code: ExitUsage}
	}
	return nil
}

// check reads one file. One that cannot be read has that as its error, so that
// the others are still checked.
func (a *app) check(path string) *spec.Report {
	text, err := a.readFile(path)
	if err != nil {
		return &spec.Report{Errors: []spec.Problem{{Path: path, Message: err.Error()}}}
	}
	_, report := spec.Parse(path, text)
	return report
}

// printReport shows one file's problems, or that there are none.
func (a *app) printReport(path string, report *spec.Report) error {
	colour := styleOf(a.Out).Colour
	verdict := "ok"
	if n := len(report.Errors); n > 0 {
		verdict = counted(n, "error")
	}
	if n := len(report.Warnings); n > 0 {
		verdict += ", " + counted(n, "warning")
	}
	err := errors.Join(
		spec.Render(a.Out, "error", report.Errors, colour),
		spec.Render(a.Out, "warning", report.Warnings, colour))
	if err == nil {
		_, err = fmt.Fprintf(a.Out, "%s: %s\n", path, verdict)
	}
	return err
}

// counted is "1 error", "2 errors".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// problems is a list for JSON, never null.
func problems(found []spec.Problem) []problem {
	out := make([]problem, 0, len(found))
	for _, p := range found {
		out = append(out, problem{Line: p.Line, Column: p.Column, Message: p.Message, Hint: p.Hint})
	}
	return out
}

// invalidFile is the error of a file, or of inputs, that cannot run.
func invalidFile(err error) *ExitError {
	return &ExitError{Code: ExitUsage, Err: err}
}

func schemaCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of pipeline files, for editors",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.Out.Write(spec.Schema())
			return err
		},
	}
}
