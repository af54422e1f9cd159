// Package proc runs the processes of steps on a host and ends them, all of
// them, whatever they do and whichever of Belay's own processes dies.
//
// Each step has a supervisor, a process between the worker and the step (see
// package supervisor), and where cgroup v2 can be written a cgroup of its own.
// The supervisor ends the step when the worker is gone; the worker ends the
// step when the supervisor is gone; what outlives both is found at the next
// start by [Host.Sweep], and before the next attempt by [Host.EndNode].
//
// On systems other than Linux a step is a process group, and no more is ended
// than its members.
//
// A process that has a [Host] must not wait for children that it does not
// know, as wait4(-1) does. Children of its own that it starts in a session of
// their own may be taken for a step's when a supervisor was killed and there is
// no cgroup.
package proc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The variables by which the processes of a step are known.
const (
	// EnvNode names the node that a process belongs to.
	EnvNode = "BELAY_NODE"
	// EnvHost names the host, so that two workers on one machine never end
	// each other's steps.
	EnvHost = "BELAY_HOST"
)

// PipeDelayDefault is how long a step's output may stay open after its end.
const PipeDelayDefault = 2 * time.Second

// Options say how a host runs its steps.
type Options struct {
	// Log is told what could not be ended. Defaults to no log.
	Log *zap.Logger
	// StateDir is the directory of this worker in which the records of running
	// steps are kept; no two living workers may share one. Required.
	StateDir string
	// CgroupRoot is a directory of the cgroup v2 hierarchy below which each
	// step gets a cgroup; New fails where that cannot be done. Defaults to the
	// worker's own cgroup, then the root of the hierarchy, whichever can be
	// written, and to no cgroups where neither can.
	CgroupRoot string
	// NoCgroup does without cgroups also where they could be had.
	NoCgroup bool
}

// Job is a command to run for a node.
type Job struct {
	// Node is the node that the command belongs to: run key, stage, step,
	// joined by slashes. Required.
	Node string
	// Argv is the program and its arguments. A program without a slash is
	// looked for in the PATH of Env, one with a slash is relative to Dir.
	Argv []string
	// Dir is the working directory. Defaults to the worker's.
	Dir string
	// Env is the whole environment, as "KEY=value"; nothing of the worker's is
	// added, only BELAY_NODE and BELAY_HOST are.
	Env []string
	// Stdout and Stderr take the output as it comes. The same writer for both
	// keeps the order. A writer that fails loses output, which Wait tells, but
	// does not stop the step. Default to nowhere.
	Stdout, Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL. Defaults to none.
	Grace time.Duration
	// DeadMan ends the step when KeepAlive was not called for this long.
	// Defaults to never.
	DeadMan time.Duration
	// PipeDelay is how long something outside of the step may hold its output
	// open after all of the step is gone. Defaults to 2 seconds.
	PipeDelay time.Duration
	// Limits bound what it may use. OnExcess, if given, is called once, from a
	// goroutine of its own, when it is seen to go over one.
	Limits   Limits
	OnExcess func(Excess)
}

// Result is how a job ended.
type Result struct {
	// ExitCode is the exit code of the main process, -1 if a signal ended it or
	// if its end is not known.
	ExitCode int
	// Signal is the name of the signal that ended the main process, such as
	// SIGKILL.
	Signal string
	// CPU is the time that the whole tree spent, user and system.
	CPU time.Duration
	// MaxRSS is the peak memory in bytes: of the whole tree where the cgroup
	// has the memory controller, else of the largest process of the tree.
	MaxRSS int64
	// Leftover counts processes that had to be killed: those still there when
	// the main process ended by itself, or when the grace period was over.
	Leftover int
	// Terminated says that the tree was told to end before the main process
	// had ended by itself.
	Terminated bool
	// DeadMan says that it ended for want of KeepAlive.
	DeadMan bool
	// SupervisorLost says that the supervisor died or stopped, so that the step
	// was ended without it and the end of the main process is not known.
	SupervisorLost bool
	// Excess is the limit that it went over, nil where it kept to all.
	Excess *Excess
	// Gone says that nothing of the step is left, proved by the kernel's word.
	Gone bool
	// GoneNote says what could not be proved, where Gone is false.
	GoneNote string
}

// String says in a few words how the main process ended.
func (r Result) String() string {
	switch {
	case r.SupervisorLost:
		return "the step's supervisor was lost"
	case r.Signal != "":
		return "killed by " + r.Signal
	case r.ExitCode == 126:
		return "exit code 126: the command was found but could not be executed"
	case r.ExitCode == 127:
		return "exit code 127: command not found"
	case r.ExitCode > 128 && signalName(r.ExitCode-128) != "":
		return fmt.Sprintf("exit code %d: a command in it was killed by %s", r.ExitCode, signalName(r.ExitCode-128))
	case r.ExitCode < 0:
		return "ended in an unknown way"
	default:
		return fmt.Sprintf("exit code %d", r.ExitCode)
	}
}

// within says whether a node is the prefix or lies below it.
func within(node, prefix string) bool {
	return node == prefix || strings.HasPrefix(node, prefix+"/")
}

// stepEnv is the environment of a step: the job's and the marks by which its
// processes are known, which the job cannot set.
func stepEnv(env []string, node, host string) []string {
	marked := make([]string, 0, len(env)+2)
	for _, kv := range env {
		if !strings.HasPrefix(kv, EnvNode+"=") && !strings.HasPrefix(kv, EnvHost+"=") {
			marked = append(marked, kv)
		}
	}
	return append(marked, EnvNode+"="+node, EnvHost+"="+host)
}

// nodeHash is the part of a step's name that stands for its node.
func nodeHash(node string) string {
	sum := sha256.Sum256([]byte(node))
	return hex.EncodeToString(sum[:8])
}

func signalName(n int) string { return unix.SignalName(unix.Signal(n)) }
