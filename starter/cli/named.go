package cli

import (
	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"belay.run/internal/run"
)

// named are the flags of what is started under a name of its own: whose it is, and
// the request that it stands for.
type named struct {
	tenant    string
	project   string
	requestID string
}

// add adds them for a thing of a kind, such as a batch.
func (n *named) add(flags *pflag.FlagSet, kind string) {
	flags.StringVar(&n.tenant, "tenant", run.DefaultTenant, "whose "+kind+" it is")
	flags.StringVar(&n.project, "project", run.DefaultProject, "the project it belongs to")
	flags.StringVar(&n.requestID, "request-id", "", "names this "+kind+": started twice, it runs once (default a new UUID)")
}

// check refuses names that are none, and makes up a request where the flags name
// none.
func (n *named) check(flags *pflag.FlagSet) error {
	for _, s := range [][2]string{{"--tenant", n.tenant}, {"--project", n.project}} {
		if !run.ValidScope(s[1]) {
			return usage("%s %q: want %s", s[0], s[1], run.ScopeWords)
		}
	}
	if !flags.Changed("request-id") {
		n.requestID = uuid.NewString()
	}
	if n.requestID == "" || len(n.requestID) > maxRequestID {
		return usage("--request-id must have 1 to %d bytes", maxRequestID)
	}
	return nil
}
