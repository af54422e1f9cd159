package host

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"belay.run/internal/config"
)

const (
	stillOpen = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
)

// fakeTemporal is a frontend that never has work, and knows of some workflows
// whether they are open.
type fakeTemporal struct {
	workflowservice.UnimplementedWorkflowServiceServer

	address string
	stop    chan struct{}

	mu        sync.Mutex
	workflows map[string]enumspb.WorkflowExecutionStatus
	silent    bool // answers no questions about workflows
	polling   map[string]int
	cancels   []*workflowservice.RequestCancelWorkflowExecutionRequest
	onCancel  func(id string)
}

// serveTemporal starts a fake on the address, "" for a free port.
func serveTemporal(t *testing.T, address string) *fakeTemporal {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	f := &fakeTemporal{
		address: l.Addr().String(), stop: make(chan struct{}),
		workflows: map[string]enumspb.WorkflowExecutionStatus{}, polling: map[string]int{},
	}
	s := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(s, f)
	h := health.NewServer()
	h.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s, h)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		close(f.stop)
		s.Stop()
		require.NoError(t, <-done)
	})
	return f
}

// dial connects to the fake.
func (f *fakeTemporal) dial(t *testing.T) *config.Temporal {
	t.Helper()
	c, err := config.DialTemporal(t.Context(), config.TemporalOptions{
		Environ: f.environ(), WorkerHeartbeat: -1, Patience: 10 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func (f *fakeTemporal) environ() []string {
	return []string{"TEMPORAL_ADDRESS=" + f.address, "TEMPORAL_CONFIG_FILE=/dev/null"}
}

// set says in which state a workflow is.
func (f *fakeTemporal) set(id string, status enumspb.WorkflowExecutionStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workflows[id] = status
}

func (f *fakeTemporal) setSilent(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = silent
}

// queues lists the queues that somebody polls now.
func (f *fakeTemporal) queues() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for q, n := range f.polling {
		if n > 0 {
			out = append(out, q)
		}
	}
	slices.Sort(out)
	return out
}

func (f *fakeTemporal) cancelled() []*workflowservice.RequestCancelWorkflowExecutionRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.cancels)
}

func (f *fakeTemporal) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.32.1", Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

func (f *fakeTemporal) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{}}, nil
}

func (f *fakeTemporal) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		return nil, serviceerror.ToStatus(serviceerror.NewInternal("no idea")).Err()
	}
	status, known := f.workflows[in.GetExecution().GetWorkflowId()]
	if !known {
		return nil, serviceerror.ToStatus(serviceerror.NewNotFound("no such workflow")).Err()
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: status},
	}, nil
}

func (f *fakeTemporal) RequestCancelWorkflowExecution(_ context.Context, in *workflowservice.RequestCancelWorkflowExecutionRequest) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancels = append(f.cancels, in)
	if f.onCancel != nil {
		go f.onCancel(in.GetWorkflowExecution().GetWorkflowId())
	}
	return &workflowservice.RequestCancelWorkflowExecutionResponse{}, nil
}

func (f *fakeTemporal) PollWorkflowTaskQueue(ctx context.Context, in *workflowservice.PollWorkflowTaskQueueRequest) (*workflowservice.PollWorkflowTaskQueueResponse, error) {
	f.poll(ctx, in.GetTaskQueue().GetName())
	return &workflowservice.PollWorkflowTaskQueueResponse{}, nil
}

func (f *fakeTemporal) PollActivityTaskQueue(ctx context.Context, in *workflowservice.PollActivityTaskQueueRequest) (*workflowservice.PollActivityTaskQueueResponse, error) {
	f.poll(ctx, in.GetTaskQueue().GetName())
	return &workflowservice.PollActivityTaskQueueResponse{}, nil
}

// poll is a long poll for work that never comes.
func (f *fakeTemporal) poll(ctx context.Context, queue string) {
	f.mu.Lock()
	f.polling[queue]++
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-f.stop:
	}
	f.mu.Lock()
	f.polling[queue]--
	f.mu.Unlock()
}
