package tree

import (
	"fmt"
	"strings"
	"time"

	"belay.run/internal/run"
)

// StatusWords is a state as it stands in a sentence.
func StatusWords(s run.Status) string {
	return strings.ReplaceAll(string(s), "_", " ")
}

// CauseWords says in words why the node stopped; "" where there is no cause.
func CauseWords(c *run.Cause, node string) string {
	if c == nil {
		return ""
	}
	s := triggerWords(c.Trigger)
	if c.Source != "" && c.Source != node {
		s += sourceWords(c)
	}
	if c.By != "" {
		s += " by " + c.By
	}
	if c.Message != "" {
		s += ": " + c.Message
	}
	return Clean(strings.ReplaceAll(s, "\n", " "))
}

// sourceWords says at which node a cause began.
func sourceWords(c *run.Cause) string {
	if c.Trigger == run.TriggerDependencyFailed {
		return ": " + c.Source
	}
	return " of " + c.Source
}

// triggerWords names a trigger for people.
func triggerWords(t run.Trigger) string {
	switch t {
	case run.TriggerUser:
		return "cancelled"
	case run.TriggerSuperseded:
		return "superseded"
	case run.TriggerPipelineTimeout, run.TriggerStageTimeout, run.TriggerStepTimeout, run.TriggerCommandTimeout,
		run.TriggerDependencyFailed, run.TriggerDependencyUnavailable, run.TriggerExitCode,
		run.TriggerProcessCrashed, run.TriggerWorkerLost, run.TriggerLimitExceeded,
		run.TriggerMaintenance, run.TriggerInvalid:
		return strings.ReplaceAll(string(t), "_", " ")
	}
	return string(t)
}

// waitingWords says what a node waits for, and since when.
func waitingWords(w *run.WaitingFor, now time.Time) string {
	if w == nil {
		return ""
	}
	s := "waiting for " + strings.ReplaceAll(w.Kind, "_", " ")
	if w.Name != "" {
		s += " " + w.Name
	}
	var more []string
	if w.Position > 0 {
		more = append(more, fmt.Sprintf("place %d", w.Position))
	}
	if w.Holder != "" {
		more = append(more, "held by "+w.Holder)
	}
	if w.Since != nil {
		more = append(more, Duration(now.Sub(*w.Since)))
	}
	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	return Clean(s)
}

// attemptWords counts attempts where there is more than one to speak of.
func attemptWords(attempts, most int) string {
	switch {
	case most > 1 && attempts > 0:
		return fmt.Sprintf("attempt %d/%d", attempts, most)
	case attempts > 1:
		return fmt.Sprintf("attempt %d", attempts)
	}
	return ""
}

// plural is "1 step", "2 steps".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
