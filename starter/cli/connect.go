package cli

import (
	"go.temporal.io/sdk/client"
)

// Connection is what the commands need of a running Belay.
type Connection struct {
	Temporal client.Client
	// Namespace is Temporal's.
	Namespace string
	// WebURL is the address of Temporal's UI, without a slash at the end; empty
	// where none is known.
	WebURL string
	// Close ends what Connect opened; it may be nil.
	Close func()
}
