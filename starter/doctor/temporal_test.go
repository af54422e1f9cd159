package doctor_test

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// temporal is a Temporal that is as a test says.
type temporal struct {
	client.Client

	ahead      time.Duration
	retention  time.Duration
	attributes map[string]enumspb.IndexedValueType
	// noOperator refuses to list the attributes.
	noOperator bool
	pollers    map[string][]*taskqueuepb.PollerInfo // by queue
	schedule   *workflowservice.DescribeScheduleResponse
	polled     chan string
}

func wellTemporal() *temporal {
	t := &temporal{
		retention: 30 * day, attributes: map[string]enumspb.IndexedValueType{},
		pollers: map[string][]*taskqueuepb.PollerInfo{}, polled: make(chan string, 1),
	}
	for _, name := range []string{"BelayTenant", "BelayProject", "BelayPipeline", "BelayStatus", "BelayDedupKey"} {
		t.attributes[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	for _, queue := range []string{"belay-workflows", "belay-steps", "belay-light", "belay-batch"} {
		t.pollers[queue] = []*taskqueuepb.PollerInfo{{Identity: "belay/h1@box", LastAccessTime: timestamppb.Now()}}
	}
	t.setSchedule(time.Now(), false)
	return t
}

// setSchedule says when the last pass of the janitor began.
func (t *temporal) setSchedule(last time.Time, paused bool) {
	t.schedule = &workflowservice.DescribeScheduleResponse{
		Schedule: &schedulepb.Schedule{
			Spec:  &schedulepb.ScheduleSpec{Interval: []*schedulepb.IntervalSpec{{Interval: durationpb.New(15 * time.Second)}}},
			State: &schedulepb.ScheduleState{Paused: paused, Notes: "for the night"},
		},
		Info: &schedulepb.ScheduleInfo{
			CreateTime:    timestamppb.New(last.Add(-time.Hour)),
			RecentActions: []*schedulepb.ScheduleActionResult{{ActualTime: timestamppb.New(last)}},
		},
	}
}

// WorkflowService is the frontend.
func (t *temporal) WorkflowService() workflowservice.WorkflowServiceClient { return service{t: t} }

// OperatorService is that for operators.
func (t *temporal) OperatorService() operatorservice.OperatorServiceClient { return operator{t: t} }

type operator struct {
	operatorservice.OperatorServiceClient

	t *temporal
}

// ListSearchAttributes lists them.
func (o operator) ListSearchAttributes(context.Context, *operatorservice.ListSearchAttributesRequest, ...grpc.CallOption) (*operatorservice.ListSearchAttributesResponse, error) {
	if o.t.noOperator {
		return nil, serviceerror.NewUnimplemented("not here")
	}
	return &operatorservice.ListSearchAttributesResponse{CustomAttributes: o.t.attributes}, nil
}

type service struct {
	workflowservice.WorkflowServiceClient

	t *temporal
}

// GetSystemInfo tells the version.
func (s service) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest, ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.32.1"}, nil
}

// DescribeNamespace tells the retention.
func (s service) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{
		NamespaceInfo: &namespacepb.NamespaceInfo{State: enumspb.NAMESPACE_STATE_REGISTERED},
		Config:        &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(s.t.retention)},
	}, nil
}

// CountWorkflowExecutions knows the attributes by their names.
func (s service) CountWorkflowExecutions(_ context.Context, in *workflowservice.CountWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	for name := range s.t.attributes {
		if in.GetQuery() == name+" = 'doctor'" {
			return &workflowservice.CountWorkflowExecutionsResponse{}, nil
		}
	}
	return nil, serviceerror.NewInvalidArgument("unknown search attribute")
}

// DescribeSchedule describes the one there is.
func (s service) DescribeSchedule(context.Context, *workflowservice.DescribeScheduleRequest, ...grpc.CallOption) (*workflowservice.DescribeScheduleResponse, error) {
	if s.t.schedule == nil {
		return nil, serviceerror.NewNotFound("no such schedule")
	}
	return s.t.schedule, nil
}

// PollWorkflowTaskQueue waits for work that never comes.
func (s service) PollWorkflowTaskQueue(ctx context.Context, in *workflowservice.PollWorkflowTaskQueueRequest, _ ...grpc.CallOption) (*workflowservice.PollWorkflowTaskQueueResponse, error) {
	s.t.polled <- in.GetIdentity()
	<-ctx.Done()
	return nil, ctx.Err()
}

// DescribeTaskQueue knows who takes from a queue.
func (s service) DescribeTaskQueue(_ context.Context, in *workflowservice.DescribeTaskQueueRequest, _ ...grpc.CallOption) (*workflowservice.DescribeTaskQueueResponse, error) {
	resp := &workflowservice.DescribeTaskQueueResponse{Pollers: s.t.pollers[in.GetTaskQueue().GetName()]}
	if in.GetTaskQueue().GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
		select {
		case me := <-s.t.polled:
			resp.Pollers = []*taskqueuepb.PollerInfo{{Identity: me, LastAccessTime: timestamppb.New(time.Now().Add(s.t.ahead))}}
		default:
		}
	}
	return resp, nil
}
