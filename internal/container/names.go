package container

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"belay.run/internal/run"
)

// The labels by which containers and networks are known to be Belay's, and
// whose they are.
const (
	labelHost     = "belay.run/host"
	labelRun      = "belay.run/run"
	labelNode     = "belay.run/node"
	labelStage    = "belay.run/stage"
	labelWorkflow = "belay.run/workflow"
	labelAttempt  = "belay.run/attempt"
	labelKind     = "belay.run/kind"
)

// What a container or a network is for.
const (
	kindStep    = "step"
	kindService = "service"
	kindNetwork = "network"
)

// Owner is whose a container is: a step or service of a stage of a run.
type Owner struct {
	RunKey string
	// Stage is the node of the stage, WorkflowID its workflow.
	Stage      string
	WorkflowID string
	// Node is the step or service itself; it is the stage for its network.
	Node string
}

func (h *Host) labels(o Owner, kind string) map[string]string {
	return map[string]string{
		labelHost: h.opts.HostID, labelRun: o.RunKey, labelNode: o.Node,
		labelStage: o.Stage, labelWorkflow: o.WorkflowID, labelKind: kind,
	}
}

func ownerOf(labels map[string]string) Owner {
	return Owner{
		RunKey: labels[labelRun], Stage: labels[labelStage],
		WorkflowID: labels[labelWorkflow], Node: labels[labelNode],
	}
}

// StepName is the name of the container of one command of an attempt, known
// before there is one.
func (h *Host) StepName(runKey, node string, attempt, command int) string {
	return h.name(runKey, node) + fmt.Sprintf("-%d.%d", attempt, command+1)
}

// networkName is the name of the network of a stage with services.
func (h *Host) networkName(runKey, stage string) string {
	return h.name(runKey, stage) + "-net"
}

// slugMax keeps a name below the 63 characters that a host name may have.
const slugMax = 24

// name is what a person can read of a node and a hash that alone decides. Two
// hosts on one engine have different names for one node: a stage that moved
// must not remove what its old host still ends.
func (h *Host) name(runKey, node string) string {
	sum := sha256.Sum256([]byte(h.opts.HostID + "\x00" + runKey + "\x00" + node))
	return "belay-" + run.Slug(node, slugMax) + "-" + hex.EncodeToString(sum[:8])
}

// Job begins the job of one command of an attempt: what of it follows from
// whose it is.
func (h *Host) Job(o Owner, attempt, command int) Job {
	labels := h.labels(o, kindStep)
	labels[labelAttempt] = strconv.Itoa(attempt)
	return Job{Engine: h.opts.Address, Name: h.StepName(o.RunKey, o.Node, attempt, command), Labels: labels}
}
