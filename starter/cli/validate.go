package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"belay.run/internal/durations"
	"belay.run/internal/router"
	"belay.run/internal/run"
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
	// Explain is there with --explain, Timeouts with --suggest-timeouts.
	Explain  []explained  `json:"explain,omitempty"`
	Timeouts []suggestion `json:"timeouts,omitempty"`
}

// validateFlags are those of validate.
type validateFlags struct {
	explain, suggest bool
	tenant, project  string
	routes           string
	out              *format
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
	var f validateFlags
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Show every error and warning of pipeline files; needs no server",
		Args:  args(cobra.MinimumNArgs(1)),
	}
	cmd.ValidArgsFunction = yamlFiles
	flags := cmd.Flags()
	flags.BoolVar(&f.explain, "explain", false, "say what the keys, windows and groups of the files mean, and where built-in steps run")
	flags.StringVar(&f.routes, "light-routes", os.Getenv("BELAY_LIGHT_ROUTES"), "the file of rules that the workers route built-in steps by")
	flags.BoolVar(&f.suggest, "suggest-timeouts", false, "show how long the last runs took, and which timeouts fit; needs Redis")
	flags.StringVar(&f.tenant, "tenant", run.DefaultTenant, "whose runs --suggest-timeouts looks at")
	flags.StringVar(&f.project, "project", run.DefaultProject, "the project whose runs it looks at")
	f.out = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, paths []string) error {
		if !f.suggest {
			return a.validate(cmd.Context(), paths, &f, nil)
		}
		return a.measured(cmd.Context(), func(ctx context.Context, d *durations.Durations) error {
			return a.validate(ctx, paths, &f, d)
		})
	}
	return cmd
}

func (a *app) validate(ctx context.Context, paths []string, f *validateFlags, d *durations.Durations) error {
	routes, err := router.Load(f.routes)
	if err != nil {
		return invalidFile(err)
	}
	doc := validateDoc{Files: make([]validateFile, 0, len(paths))}
	broken := false
	for _, path := range paths {
		file, report := a.check(path)
		broken = broken || len(report.Errors) > 0
		v := validateFile{Path: path, Errors: problems(report.Errors), Warnings: problems(report.Warnings)}
		if file != nil && f.explain {
			v.Explain = explain(file.Draft(), routes)
		}
		if file != nil && d != nil {
			if v.Timeouts, err = suggest(ctx, d, f, file.Draft()); err != nil {
				return err
			}
		}
		doc.Files = append(doc.Files, v)
		if *f.out == formatText {
			if err := a.printReport(path, report); err != nil {
				return err
			}
			if err := a.printExplained(f, file, &v); err != nil {
				return err
			}
		}
	}
	if *f.out == formatJSON {
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
func (a *app) check(path string) (*spec.File, *spec.Report) {
	text, err := a.readFile(path)
	if err != nil {
		return nil, &spec.Report{Errors: []spec.Problem{{Path: path, Message: err.Error()}}}
	}
	return spec.Parse(path, text)
}

// printReport shows one file's problems, or that there are none.
func (a *app) printReport(path string, report *spec.Report) error {
	colour := styleOf(a.Out).Colour
	verdict := "ok"
	if n := report.Count(); n > 0 {
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
