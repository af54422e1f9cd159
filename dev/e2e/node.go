package e2e

import "belay.run/internal/run"

// Node is what pipelines, stages and steps have in common, and what of it only
// steps have.
type Node struct {
	Status   run.Status
	Cause    *run.Cause
	Attempts int
	ExitCode *int
	Outputs  map[string]string
}

// Nodes are all nodes of a run by their paths: "" is the run itself.
func Nodes(d *run.Document) map[string]Node {
	nodes := map[string]Node{"": {Status: d.Status, Cause: d.Cause}}
	for _, stage := range d.Stages {
		nodes[stage.Node] = Node{Status: stage.Status, Cause: stage.Cause}
		for _, step := range stage.Steps {
			nodes[step.Node] = Node{
				Status: step.Status, Cause: step.Cause, Attempts: step.Attempts,
				ExitCode: step.ExitCode, Outputs: step.Outputs,
			}
		}
	}
	return nodes
}
