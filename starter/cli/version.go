package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"belay.run/internal/version"
)

// versionDoc is what version prints under -o json.
type versionDoc struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func versionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit it was built from, and Go's version",
		Args:  noArgs,
	}
	out := outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		doc := buildVersion(a.Version)
		if *out == formatJSON {
			return writeJSON(a.Out, doc)
		}
		commit := doc.Commit
		if doc.Modified {
			commit += " with changes"
		}
		_, err := fmt.Fprintf(a.Out, "belay %s\ncommit %s\n%s %s/%s\n", doc.Version, commit, doc.Go, doc.OS, doc.Arch)
		return err
	}
	return cmd
}

// buildVersion fills in what the Go tool recorded in the binary.
func buildVersion(release string) versionDoc {
	doc := versionDoc{Version: cmp.Or(release, version.String()), Commit: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return doc
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			doc.Commit = s.Value
		case "vcs.modified":
			doc.Modified = s.Value == "true"
		}
	}
	return doc
}
