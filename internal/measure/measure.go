// Package measure names what workflows measure. They tell it the metrics handler
// of Temporal's SDK, which takes nothing in a replay; the worker's metrics make
// Prometheus's of it.
package measure

// What is measured. The first three are timers, the last is a counter.
const (
	// Ended is how long a node took that has ended. Tags: Of, Outcome, Trigger.
	Ended = "belay_ended"
	// Stopped is how long a node took to end after it was told to. Tags: Of.
	Stopped = "belay_stopped"
	// Waited is how long was waited in a queue. Tags: Of.
	Waited = "belay_waited"
	// Retried counts the attempts of steps after their first. Tags: Of.
	Retried = "belay_retried"
)

// Tags. Every measure has Of, by which the worker knows its own.
const (
	Of      = "belay_of"
	Outcome = "outcome"
	Trigger = "trigger"
)

// Values of Of for nodes.
const (
	Run   = "run"
	Stage = "stage"
	Step  = "step"
)

// Values of Of for what is waited for.
const (
	// Group is a slot of a concurrency group.
	Group = "group"
	// Host is a host that takes a stage.
	Host = "host"
	// Process is a step's place among the processes of its host.
	Process = "process"
	// Lock is a lock, Claim a key that another holds.
	Lock  = "lock"
	Claim = "claim"
)
