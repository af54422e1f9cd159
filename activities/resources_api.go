package activities

import (
	"time"

	"belay.run/internal/resource"
)

// ReleaseInput names what is to be given back.
type ReleaseInput struct {
	// Entries are known to have been acquired, or begun to be.
	Entries []resource.Entry `json:"entries,omitempty"`
	// RunKey and Node, where they are set, add whatever this host, or the
	// ledger, knows of the node and of what lies in it.
	RunKey string `json:"run_key,omitempty"`
	Node   string `json:"node,omitempty"`
	// Stage leaves out what lies in the node: only what the stage itself holds is
	// given back.
	Stage bool `json:"stage,omitempty"`
	// Declared is what attempts of the node may have acquired. It counts only
	// where nothing that would know better can be asked.
	Declared []resource.Entry `json:"declared,omitempty"`
	// Last says that nobody tries again soon: what is not released has leaked.
	Last bool `json:"last,omitempty"`
}

// ReleaseResult is what became of all that was to be given back.
type ReleaseResult struct {
	Entries []resource.Entry `json:"entries"`
}

// Left are those that are not released.
func (r *ReleaseResult) Left() []resource.Entry {
	var out []resource.Entry
	for _, e := range r.Entries {
		if e.Open() {
			out = append(out, e)
		}
	}
	return out
}

// ReleaseTry bounds one try to give one resource back.
const ReleaseTry = 10 * time.Second
