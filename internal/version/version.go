// Package version says which build of Belay this is.
package version

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// version is stamped by the linker in released builds:
// -X belay.run/internal/version.version=v1.2.3.
var version string

// String is the version that was stamped, else what the Go tool recorded: the
// module's version and the revision, or "devel".
func String() string {
	if version != "" {
		return version
	}
	return recorded()
}

// recorded is read once: whoever sends a request says it, and to read it takes as
// long as to send one.
var recorded = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return fmt.Sprintf("%s (%s)", info.Main.Version, s.Value)
		}
	}
	return info.Main.Version
})
