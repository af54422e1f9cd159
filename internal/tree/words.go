package tree

import (
	"cmp"
	"fmt"
	"slices"
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
	source := c.Source
	if source == node {
		source = ""
	}
	var s string
	switch c.Trigger {
	case run.TriggerUser, run.TriggerSuperseded, run.TriggerMaintenance:
		s = join([]string{triggerWords(c.Trigger) + word(" at ", source) + word(" by ", c.By), c.Message}, ": ")
	case run.TriggerDependencyFailed:
		because := "because of " + c.Source
		if c.Source == "" {
			because = "because the run was stopped"
		}
		s = join([]string{because, c.Message}, ": ")
	case run.TriggerPipelineTimeout, run.TriggerStageTimeout, run.TriggerStepTimeout, run.TriggerCommandTimeout,
		run.TriggerDependencyUnavailable, run.TriggerExitCode, run.TriggerProcessCrashed,
		run.TriggerWorkerLost, run.TriggerLimitExceeded, run.TriggerInvalid, run.TriggerGroupFull:
		s = join([]string{source, cmp.Or(c.Message, triggerWords(c.Trigger))}, ": ")
	default:
		s = join([]string{source, triggerWords(c.Trigger), c.Message}, ": ")
	}
	return Clean(strings.ReplaceAll(s, "\n", " "))
}

// word is text with what leads to it, or nothing.
func word(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
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
		run.TriggerMaintenance, run.TriggerInvalid, run.TriggerGroupFull:
		return strings.ReplaceAll(string(t), "_", " ")
	}
	return string(t)
}

// waitingWords says what a node waits for, and since when.
func waitingWords(w *run.WaitingFor, now time.Time) string {
	if w == nil {
		return ""
	}
	s := waitWords(w.Kind) + word(" ", w.Name)
	if w.Kind == "lost_host" {
		s += ", which does not answer"
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
	s += word(": ", strings.ReplaceAll(w.Reason, "\n", " "))
	return Clean(s)
}

// join joins the parts that are not empty.
func join(parts []string, by string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), by)
}

// waitWords says what a wait of a kind is. Some waits are work.
func waitWords(kind string) string {
	switch kind {
	case run.WaitsQuota:
		return "waiting for its turn among the"
	case "host":
		return "waiting for a host on"
	case "workspace":
		return "filling the workspace on"
	case "artifacts":
		return "saving artifacts on"
	case "process_slot":
		return "waiting for a process slot"
	case "light_room":
		return "waiting for room among light tasks for"
	case "lost_host":
		return "waiting for host"
	case "retry":
		return "trying again after"
	case "release":
		return "giving the workspace back on"
	}
	return "waiting for " + strings.ReplaceAll(kind, "_", " ")
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
