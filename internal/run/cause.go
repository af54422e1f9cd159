package run

import (
	"fmt"
	"slices"
)

// Trigger is the kind of event that stopped a node.
type Trigger string

// The triggers of a cause.
const (
	TriggerUser                  Trigger = "user"
	TriggerSuperseded            Trigger = "superseded"
	TriggerPipelineTimeout       Trigger = "pipeline_timeout"
	TriggerStageTimeout          Trigger = "stage_timeout"
	TriggerStepTimeout           Trigger = "step_timeout"
	TriggerCommandTimeout        Trigger = "command_timeout"
	TriggerDependencyFailed      Trigger = "dependency_failed"
	TriggerDependencyUnavailable Trigger = "dependency_unavailable"
	TriggerExitCode              Trigger = "exit_code"
	TriggerProcessCrashed        Trigger = "process_crashed"
	TriggerWorkerLost            Trigger = "worker_lost"
	TriggerLimitExceeded         Trigger = "limit_exceeded"
	TriggerMaintenance           Trigger = "maintenance"
	TriggerInvalid               Trigger = "invalid"
	// TriggerGroupFull: its concurrency group was full, and the file says that
	// it is to be refused then.
	TriggerGroupFull Trigger = "group_full"
)

// ErrorDuplicate is the type of the application error with which a run ends
// that is a duplicate of one that has not gone well, or that was refused because
// of another. It is no trigger: nothing of it ran.
const ErrorDuplicate = "Duplicate"

// Cause says why a node stopped: what happened, at which node it began (Source,
// a node path, "" for the pipeline itself), in words, and who asked for it.
type Cause struct {
	Trigger Trigger `json:"trigger"`
	Source  string  `json:"source"`
	Message string  `json:"message,omitempty"`
	By      string  `json:"by,omitempty"`
}

// String is the cause in one line, as people read it.
func (c *Cause) String() string {
	if c == nil {
		return ""
	}
	s, at := string(c.Trigger), " of "
	if c.Trigger == TriggerUser {
		s, at = "cancelled", " at "
	}
	if c.Source != "" {
		s += at + c.Source
	}
	if c.By != "" {
		s += " by " + c.By
	}
	if c.Message != "" {
		s = fmt.Sprintf("%s: %s", s, c.Message)
	}
	return s
}

// Status is the state of the node in which the cause arose. A node that is told
// to stop from above is Cancelled whatever the cause; one that stops because of
// a child takes the child's state.
func (t Trigger) Status() Status {
	switch t {
	case TriggerPipelineTimeout, TriggerStageTimeout, TriggerStepTimeout, TriggerCommandTimeout:
		return TimedOut
	case TriggerUser, TriggerSuperseded, TriggerMaintenance:
		return Cancelled
	case TriggerDependencyFailed:
		return Skipped
	case TriggerExitCode, TriggerProcessCrashed, TriggerWorkerLost, TriggerLimitExceeded,
		TriggerDependencyUnavailable, TriggerInvalid, TriggerGroupFull:
		return Failed
	}
	return Failed
}

// Triggers lists all triggers.
func Triggers() []Trigger {
	return []Trigger{
		TriggerUser, TriggerSuperseded, TriggerPipelineTimeout, TriggerStageTimeout, TriggerStepTimeout,
		TriggerCommandTimeout, TriggerDependencyFailed, TriggerDependencyUnavailable, TriggerExitCode,
		TriggerProcessCrashed, TriggerWorkerLost, TriggerLimitExceeded, TriggerMaintenance, TriggerInvalid,
		TriggerGroupFull,
	}
}

// Known reports whether t is one of the triggers.
func (t Trigger) Known() bool { return slices.Contains(Triggers(), t) }
