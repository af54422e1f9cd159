package run

import "go.temporal.io/sdk/temporal"

// Priorities of runs: smaller is sooner. They are Temporal's, of which a server
// has five by default.
const (
	FirstPriority = 1
	LastPriority  = 5
)

// maxFairnessKey is what Temporal takes of a fairness key, in bytes.
const maxFairnessKey = 64

// Priority is how tasks of a tenant stand in Temporal's queues: beside those of
// other tenants, turn by turn, not behind all that came earlier. A server heeds
// that where matching.enableFairness is on. What a workflow starts inherits it. A
// key of 0 is that of who starts it, else Temporal's default, in the middle.
func Priority(tenant string, key int) temporal.Priority {
	if tenant == "" {
		tenant = DefaultTenant
	}
	return temporal.Priority{PriorityKey: key, FairnessKey: tenant[:min(len(tenant), maxFairnessKey)]}
}
