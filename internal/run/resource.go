package run

// ResourceState is the state of something that a node acquired.
type ResourceState string

// The states of a resource, in the order it can pass through them. Acquiring is
// written before it is acquired, so what may exist is never unknown.
const (
	ResourceAcquiring ResourceState = "acquiring"
	ResourceHeld      ResourceState = "held"
	ResourceReleasing ResourceState = "releasing"
	ResourceReleased  ResourceState = "released"
	// ResourceLeaked: it could not be released, or nobody can prove that it was.
	ResourceLeaked ResourceState = "leaked"
)

// Resource is something a node acquired that must be released.
type Resource struct {
	Kind  string        `json:"kind"`
	Name  string        `json:"name"`
	State ResourceState `json:"state"`
	// Attempts is how often its release was tried.
	Attempts int `json:"attempts"`
	// Error is why it is not released.
	Error string `json:"error,omitempty"`
}
