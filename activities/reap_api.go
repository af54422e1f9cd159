package activities

import (
	"time"

	"belay.run/internal/batch"
	"belay.run/internal/resource"
	"belay.run/internal/retention"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// What the janitor and those who speak of it share.
const (
	// JanitorWorkflow and ReapWorkflow are the registered workflow types.
	JanitorWorkflow = "Janitor"
	ReapWorkflow    = "Reap"
	// JanitorSchedule is the id of the schedule that starts the janitor.
	JanitorSchedule = "belay-janitor"
	// PipelineClock names the timer of a run's own timeout.
	PipelineClock = "timeout of the pipeline"
)

// JanitorInput starts one pass of the janitor.
type JanitorInput struct {
	// Patience is how long the pass waits for what it has begun; that goes on
	// all the same. Zero means 30 seconds.
	Patience time.Duration `json:"patience,omitempty"`
	// Eager tries again at once what could not be released before, however
	// often that was.
	Eager bool `json:"eager,omitempty"`
	// Retention also removes what was kept for long enough, which the workers
	// otherwise do every hour.
	Retention bool `json:"retention,omitempty"`
}

// JanitorResult is what a pass found and did.
type JanitorResult struct {
	// Runs are those that it released something of, or tried to.
	Runs []ReapResult `json:"runs"`
	// Released counts what was given back in this pass, Leaked what was tried
	// and could not be.
	Released int `json:"released"`
	Leaked   int `json:"leaked"`
	// Left counts those that Runs has no room for.
	Left int `json:"left,omitempty"`
	// UnderWay are runs whose release goes on after the pass.
	UnderWay []string `json:"under_way"`
	// Overdue are runs that should have ended long ago: the pass told people.
	Overdue []string `json:"overdue,omitempty"`
	// Expired counts what was removed since it was kept for long enough; nil where
	// the pass was not to look.
	Expired *retention.Result `json:"expired,omitempty"`
	// More says that there were more runs than one pass takes.
	More bool `json:"more,omitempty"`
	// Notes are what kept the pass from seeing everything.
	Notes []string `json:"notes,omitempty"`
}

// ReapInput names the closed run, or with a Node the closed stage of a run,
// whose remains are to be released.
type ReapInput struct {
	Owner Owner `json:"owner"`
	// Run and RunID name the run where Owner is a stage.
	Run   string `json:"run,omitempty"`
	RunID string `json:"run_id,omitempty"`
	// Eager tries each thing as often as a stage does, not once.
	Eager bool `json:"eager,omitempty"`
	// Notify is who is told, where the caller knows that.
	Notify *spec.Notify `json:"notify,omitempty"`
}

// ReapResult is what came of it.
type ReapResult struct {
	RunKey   string `json:"run_key"`
	ID       string `json:"id"`
	RunID    string `json:"run_id,omitempty"`
	Node     string `json:"node,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
	// Open says that there was nothing to do: it has not ended.
	Open bool `json:"open,omitempty"`
	// Released and Leaked are what was given back, and what was not.
	Released []ReapedEntry `json:"released"`
	Leaked   []ReapedEntry `json:"leaked"`
	Notes    []string      `json:"notes,omitempty"`
}

// ReapedEntry is one resource in a report.
type ReapedEntry struct {
	Node string `json:"node"`
	Kind string `json:"kind"`
	Name string `json:"name"`
	Host string `json:"host,omitempty"`
	// Error is why it was not released.
	Error string `json:"error,omitempty"`
}

// FindInput bounds a look for closed runs that left something.
type FindInput struct {
	Limit int  `json:"limit"`
	Eager bool `json:"eager,omitempty"`
}

// Found are closed runs that may have left something.
type Found struct {
	Runs []Owner `json:"runs"`
	// Overdue are open runs that should have ended long ago, of which nobody has
	// been told yet.
	Overdue []Overdue `json:"overdue,omitempty"`
	More    bool      `json:"more,omitempty"`
	Notes   []string  `json:"notes,omitempty"`
}

// Closed is how a run or a stage has ended.
type Closed struct {
	// Open says that it has not, and that nothing of it may be touched.
	Open   bool       `json:"open,omitempty"`
	Status run.Status `json:"status,omitempty"`
}

// Remains are what a closed run or stage may have left.
type Remains struct {
	Entries []resource.Entry `json:"entries"`
	// More says that there is more than one answer holds.
	More bool `json:"more,omitempty"`
	// Bound are stages that were ended without giving their workspace back, and
	// the hosts that had it.
	Bound    []BoundStage `json:"bound"`
	Notify   *spec.Notify `json:"notify,omitempty"`
	Pipeline string       `json:"pipeline,omitempty"`
	Tenant   string       `json:"tenant,omitempty"`
	Project  string       `json:"project,omitempty"`
}

// BoundStage is a stage and a host that took it.
type BoundStage struct {
	Owner   Owner   `json:"owner"`
	Binding Binding `json:"binding"`
}

// Notice is what somebody is told: that resources of a run leaked, that they are
// released after all, that a run is overdue, or that a batch has ended.
type Notice struct {
	// Event is one of those below.
	Event     string           `json:"event"`
	Tenant    string           `json:"tenant"`
	Project   string           `json:"project"`
	Pipeline  string           `json:"pipeline"`
	Run       string           `json:"run"`
	RunID     string           `json:"run_id"`
	RunKey    string           `json:"run_key"`
	At        time.Time        `json:"at"`
	Resources []NoticeResource `json:"resources"`
	// Deadline is when a run that is overdue should have ended.
	Deadline *time.Time `json:"deadline,omitempty"`
	// Batch is set where a batch has ended.
	Batch *batch.Document `json:"batch,omitempty"`
}

// The events of a notice.
const (
	EventLeaked   = "leaked"
	EventReleased = "released"
	// EventOverdue tells of a run that goes on long after its budgets.
	EventOverdue = "overdue"
	// EventBatchEnded tells of a batch, however it ended.
	EventBatchEnded = "batch_ended"
)

// NoticeResource is one resource in a notice.
type NoticeResource struct {
	Node     string            `json:"node"`
	Scope    string            `json:"scope"`
	Kind     string            `json:"kind"`
	Name     string            `json:"name"`
	State    run.ResourceState `json:"state"`
	Attempts int               `json:"attempts"`
	Host     string            `json:"host"`
	Error    string            `json:"error"`
	Since    time.Time         `json:"since,omitzero"`
}

// NotifyInput is a notice and who is to have it; nobody is told by a nil Notify,
// save the log.
type NotifyInput struct {
	Notify *spec.Notify `json:"notify,omitempty"`
	Notice Notice       `json:"notice"`
}
