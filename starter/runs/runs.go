// Package runs reads runs from Temporal and asks things of them: which run is
// meant, how it stands, how it ended, that it cancel.
package runs

import (
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"belay.run/internal/resource"
)

// Bounds of what is asked of Temporal.
const (
	// patience is how long a worker has to answer a question about a run.
	patience = 5 * time.Second
	// serverPatience is how long the server has for what needs no worker.
	serverPatience = 10 * time.Second
	// listPatience is how long it has for all pages of a long answer.
	listPatience = 30 * time.Second
	// atOnce is how many stages are asked at one time.
	atOnce = 4
)

// Ref names one execution of a run.
type Ref struct {
	ID    string
	RunID string
}

// String is the form that every command takes: id@run_id.
func (r Ref) String() string { return r.ID + "@" + r.RunID }

// Client asks Temporal about runs. It is safe for concurrent use.
type Client struct {
	temporal  client.Client
	namespace string
	web       string
	// ledger opens what is known of resources beside the runs; it may be nil.
	ledger func() (*resource.Ledger, error)
}

// New makes a client for one namespace. web is the address of Temporal's UI, or
// empty.
func New(temporal client.Client, namespace, web string) *Client {
	return &Client{temporal: temporal, namespace: namespace, web: strings.TrimRight(web, "/")}
}

// WithLedger has runs read together with the ledger: what it says was released
// after a run had said that it could not be, is.
func (c *Client) WithLedger(open func() (*resource.Ledger, error)) *Client {
	out := *c
	out.ledger = open
	return &out
}

// URL is where Temporal's UI shows a run; empty where no UI is known.
func (c *Client) URL(ref Ref) string {
	if c.web == "" {
		return ""
	}
	return c.web + "/namespaces/" + url.PathEscape(c.namespace) + "/workflows/" +
		url.PathEscape(ref.ID) + "/" + url.PathEscape(ref.RunID)
}
