package runs_test

import (
	"testing"
	"time"

	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

const runID = "0a1b2c3d-0000-4000-8000-000000000001"

type bundle struct {
	server *frontend.Server
	client *runs.Client
}

func setup(t *testing.T) *bundle {
	t.Helper()
	server := frontend.New(t)
	return &bundle{server: server, client: runs.New(server.Dial(t), frontend.Namespace, "http://ui:8233/")}
}

func now() *time.Time {
	t := time.Now().UTC()
	return &t
}

// pipeline adds a run with the given stages, each a workflow of its own.
func (b *bundle) pipeline(id string, doc *run.Document) *frontend.Workflow {
	doc.ID, doc.RunID, doc.RunKey = id, runID, runID
	if doc.Status == "" {
		doc.Status = run.Running
	}
	return b.server.Add(&frontend.Workflow{
		ID: id, RunID: runID, Type: workflows.PipelineWorkflow,
		Input:  workflows.PipelineInput{File: "name: p", Inputs: map[string]string{"tag": "v1"}},
		Status: func() (any, error) { return doc, nil },
	})
}

// stage adds the workflow of a stage, and its entry in a pipeline's document.
func (b *bundle) stage(doc *run.Document, name string, full *run.Stage) *frontend.Workflow {
	full.Name, full.Node = name, name
	w := b.server.Add(&frontend.Workflow{
		ID: "child/" + name, Type: workflows.StageWorkflow, ParentID: doc.ID,
		Input:  map[string]any{"stage": map[string]any{"name": name}},
		Status: func() (any, error) { return full, nil },
	})
	entry := *full
	entry.Steps, entry.WorkflowID, entry.RunID = nil, w.ID, w.RunID
	doc.Stages = append(doc.Stages, entry)
	return w
}

func step(node string, s run.Status) run.Step {
	return run.Step{Name: node, Node: node, Status: s, Attempts: 1}
}
