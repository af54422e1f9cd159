// Package frontend is as much of a Temporal server as the command line talks
// to, in memory: tests say which workflows there are, how they answer, and look
// at what was asked.
package frontend

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Namespace is the only one.
const Namespace = "default"

// Server is the frontend. Its methods are safe for concurrent use.
type Server struct {
	workflowservice.UnimplementedWorkflowServiceServer

	mu        sync.Mutex
	workflows []*Workflow
	tasks     []*Activity
	changed   chan struct{} // closed and replaced when something changes
	onStart   func(*Workflow)
	asked     Asked
	address   string
	out       bool
}

// Asked is what clients have asked for.
type Asked struct {
	Starts  []*workflowservice.StartWorkflowExecutionRequest
	Cancels []*workflowservice.RequestCancelWorkflowExecutionRequest
	Signals []*workflowservice.SignalWorkflowExecutionRequest
	Updates []*workflowservice.UpdateWorkflowExecutionRequest
	Queries int
	// Tasks are standalone activities, CancelledTasks those of them that were
	// asked to cancel.
	Tasks          []*workflowservice.StartActivityExecutionRequest
	CancelledTasks []*workflowservice.RequestCancelActivityExecutionRequest
}

// Workflow is one execution.
type Workflow struct {
	ID, RunID, Type string
	// FirstRunID defaults to RunID.
	FirstRunID string
	ParentID   string
	Input      any
	Started    time.Time
	// Attributes are its search attributes, all keywords.
	Attributes map[string]string
	// Status answers the status query. Nil: no worker answers.
	Status func() (any, error)
	// Cancelled is called for each request to cancel; it may be nil.
	Cancelled func(*workflowservice.RequestCancelWorkflowExecutionRequest)
	// Update answers updates: an error refuses them. Nil accepts them all.
	Update func(arg []byte) error
	// Events are between the first and the last of its history.
	Events []*historypb.HistoryEvent
	// Pending are its pending activities.
	Pending []*workflowpb.PendingActivityInfo

	closeEvent *historypb.HistoryEvent
	closedAs   enumspb.WorkflowExecutionStatus
}

// New starts a frontend for the time of a test.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{changed: make(chan struct{})}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	server := grpc.NewServer(grpc.UnaryInterceptor(s.outage))
	workflowservice.RegisterWorkflowServiceServer(server, s)
	alive := health.NewServer()
	alive.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, alive)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return s
}

// Outage makes every call fail as if the server could not be used, or ends that.
func (s *Server) Outage(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = on
}

func (s *Server) outage(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	out := s.out
	s.mu.Unlock()
	if out {
		// Not what the SDK tries again by itself for a long time.
		return nil, fail(serviceerror.NewInternal("persistence is away"))
	}
	return handle(ctx, req)
}

// Address is host:port of the frontend.
func (s *Server) Address() string { return s.address }

// Dial connects to the frontend for the time of a test.
func (s *Server) Dial(t *testing.T) client.Client {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{
		HostPort: s.address, Namespace: Namespace, Logger: quiet{}, Identity: "test@here",
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// OnStart is called for each workflow that a client starts, to give it its
// answers.
func (s *Server) OnStart(f func(*Workflow)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onStart = f
}

// Add puts an execution there. What is left out is filled in.
func (s *Server) Add(w *Workflow) *Workflow {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(w)
	return w
}

func (s *Server) add(w *Workflow) {
	if w.RunID == "" {
		w.RunID = uuid.NewString()
	}
	if w.FirstRunID == "" {
		w.FirstRunID = w.RunID
	}
	if w.Started.IsZero() {
		w.Started = time.Now()
	}
	s.workflows = append(s.workflows, w)
}

// Asked is what was asked so far.
func (s *Server) Asked() Asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// End closes an execution with an event made by Completed, Failed, Canceled or
// Terminated.
func (s *Server) End(w *Workflow, as enumspb.WorkflowExecutionStatus, event *historypb.HistoryEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.closedAs, w.closeEvent = as, event
	close(s.changed)
	s.changed = make(chan struct{})
}

// find is the execution that an id and a run id mean, the newest without one.
func (s *Server) find(id, runID string) *Workflow {
	for _, v := range slices.Backward(s.workflows) {
		if w := v; w.ID == id && (runID == "" || w.RunID == runID) {
			return w
		}
	}
	return nil
}

// await returns when the execution is closed, or ctx ends.
func (s *Server) await(ctx context.Context, w *Workflow) bool {
	for {
		s.mu.Lock()
		closed, changed := w.closeEvent != nil, s.changed
		s.mu.Unlock()
		if closed {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// quiet drops what the SDK logs.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
