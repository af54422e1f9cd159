package run

import (
	"net/url"
	"strings"
)

// Scope tells the tenant, project and pipeline of a run from its workflow id. It
// is not ok for an id that Belay did not make: a run that Temporal's UI started
// has any.
func Scope(id string) (tenant, project, pipeline string, ok bool) {
	parts := strings.SplitN(id, "/", 5)
	if len(parts) < 5 || parts[3] != "k" && parts[3] != "r" {
		return "", "", "", false
	}
	for i, p := range parts[:3] {
		name, err := url.PathUnescape(p)
		if err != nil {
			return "", "", "", false
		}
		parts[i] = name
	}
	return parts[0], parts[1], parts[2], true
}
