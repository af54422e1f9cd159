package seal_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	protocolpb "go.temporal.io/api/protocol/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	updatepb "go.temporal.io/api/update/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"belay.run/internal/seal"
)

// server takes down what it is sent, and answers what it is told to.
type server struct {
	workflowservice.UnimplementedWorkflowServiceServer

	answers chan proto.Message // nil ones are errors

	mu  sync.Mutex
	got []proto.Message
}

// intercept answers every call.
func (s *server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod == workflowservice.WorkflowService_GetSystemInfo_FullMethodName {
		return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
	}
	msg, ok := req.(proto.Message)
	if !ok {
		return next(ctx, req)
	}
	s.mu.Lock()
	s.got = append(s.got, msg)
	s.mu.Unlock()
	select {
	case a := <-s.answers:
		if a == nil {
			return nil, status.Error(codes.Unavailable, "not now")
		}
		return a, nil
	default:
		return answerTo(info.FullMethod)
	}
}

// answerTo is an empty answer.
func answerTo(method string) (proto.Message, error) {
	switch method {
	case workflowservice.WorkflowService_RespondWorkflowTaskFailed_FullMethodName:
		return &workflowservice.RespondWorkflowTaskFailedResponse{}, nil
	case workflowservice.WorkflowService_RespondQueryTaskCompleted_FullMethodName:
		return &workflowservice.RespondQueryTaskCompletedResponse{}, nil
	case workflowservice.WorkflowService_RespondActivityTaskFailed_FullMethodName:
		return &workflowservice.RespondActivityTaskFailedResponse{}, nil
	case workflowservice.WorkflowService_RespondWorkflowTaskCompleted_FullMethodName:
		return &workflowservice.RespondWorkflowTaskCompletedResponse{}, nil
	case workflowservice.WorkflowService_RespondNexusTaskCompleted_FullMethodName:
		return &workflowservice.RespondNexusTaskCompletedResponse{}, nil
	case workflowservice.WorkflowService_StartWorkflowExecution_FullMethodName:
		return &workflowservice.StartWorkflowExecutionResponse{RunId: "r"}, nil
	}
	return nil, status.Error(codes.Unimplemented, method)
}

// last is the last request.
func (s *server) last(t *testing.T) proto.Message {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotEmpty(t, s.got)
	return s.got[len(s.got)-1]
}

// logLines keeps what the border logs.
type logLines struct {
	sdklog.Logger

	mu    sync.Mutex
	lines []any
}

func (l *logLines) Error(msg string, keyvals ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(append(l.lines, msg), keyvals...)
}
func (*logLines) Debug(string, ...any) {}
func (*logLines) Info(string, ...any)  {}
func (*logLines) Warn(string, ...any)  {}

type bundle struct {
	*server

	client  client.Client
	service workflowservice.WorkflowServiceClient
	log     *logLines
}

// connect returns a client with the codec, and its server.
func connect(t *testing.T, c *seal.Codec) *bundle {
	t.Helper()
	b := &bundle{server: &server{answers: make(chan proto.Message, 10)}, log: &logLines{}}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.UnaryInterceptor(b.intercept))
	workflowservice.RegisterWorkflowServiceServer(s, b.server)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	o := client.Options{HostPort: l.Addr().String(), Logger: b.log}
	c.Apply(&o)
	b.client, err = client.NewLazyClient(o)
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	b.service = b.client.WorkflowService()
	return b
}

func payloads(t *testing.T, values ...any) *commonpb.Payloads {
	t.Helper()
	out := &commonpb.Payloads{}
	for _, v := range values {
		out.Payloads = append(out.Payloads, payload(t, v))
	}
	return out
}

// failures is an error within another, with the marker in both.
func failures(t *testing.T) *failurepb.Failure {
	t.Helper()
	return temporal.GetDefaultFailureConverter().ErrorToFailure(temporal.NewApplicationErrorWithCause(
		"outer "+marker, "exit_code", errors.New("inner "+marker), marker))
}

func TestWhatLeavesIsSealed(t *testing.T) {
	t.Parallel()
	c := codec(t, key("k1", 1))

	t.Run("AStart", func(t *testing.T) {
		t.Parallel()
		b := connect(t, c)
		attribute := temporal.NewSearchAttributeKeyKeyword("BelayPipeline")
		b.answers <- nil // the SDK sends it once more
		_, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID: "w", TaskQueue: "q", Memo: map[string]any{"note": marker}, StaticSummary: marker,
			TypedSearchAttributes: temporal.NewSearchAttributes(attribute.ValueSet("shop")),
		}, "Pipeline", marker)
		require.NoError(t, err)
		sent, ok := b.last(t).(*workflowservice.StartWorkflowExecutionRequest)
		require.True(t, ok)
		require.Len(t, b.got, 2)
		require.NotContains(t, sent.String(), marker)
		require.Contains(t, sent.GetSearchAttributes().String(), "shop", "Temporal indexes these")
		require.True(t, proto.Equal(payload(t, marker), one(t, c.Decode, sent.GetInput().GetPayloads()[0])), "sealed once, not twice")
	})

	t.Run("ErrorsPassedOn", func(t *testing.T) {
		t.Parallel()
		b := connect(t, c)
		answer := &updatepb.Response{Outcome: &updatepb.Outcome{Value: &updatepb.Outcome_Failure{Failure: failures(t)}}}
		body, err := anypb.New(answer)
		require.NoError(t, err)
		req := &workflowservice.RespondWorkflowTaskCompletedRequest{
			Commands: []*commandpb.Command{{Attributes: &commandpb.Command_FailWorkflowExecutionCommandAttributes{
				FailWorkflowExecutionCommandAttributes: &commandpb.FailWorkflowExecutionCommandAttributes{Failure: failures(t)},
			}}},
			Messages: []*protocolpb.Message{{Body: body}, {Body: &anypb.Any{TypeUrl: "type.googleapis.com/not.known", Value: []byte{1}}}},
		}
		was := proto.Clone(req)
		_, err = b.service.RespondWorkflowTaskCompleted(t.Context(), req)
		require.NoError(t, err)
		require.True(t, proto.Equal(was, req), "the SDK's own is left as it was")
		sent, ok := b.last(t).(*workflowservice.RespondWorkflowTaskCompletedRequest)
		require.True(t, ok)
		wire, err := proto.Marshal(sent)
		require.NoError(t, err)
		require.NotContains(t, string(wire), marker)
		f := sent.GetCommands()[0].GetFailWorkflowExecutionCommandAttributes().GetFailure()
		require.Equal(t, "exit_code", f.GetApplicationFailureInfo().GetType(), "retry policies go by it")
	})

	t.Run("NotWhatTemporalItselfReads", func(t *testing.T) {
		t.Parallel()
		b := connect(t, c)
		_, err := b.service.RespondNexusTaskCompleted(t.Context(), &workflowservice.RespondNexusTaskCompletedRequest{
			Response: &nexuspb.Response{Variant: &nexuspb.Response_StartOperation{StartOperation: &nexuspb.StartOperationResponse{
				Variant: &nexuspb.StartOperationResponse_SyncSuccess{SyncSuccess: &nexuspb.StartOperationResponse_Sync{Payload: payload(t, marker)}},
			}}},
		})
		require.NoError(t, err)
		require.Contains(t, prototext.Format(b.last(t)), marker)
	})

	t.Run("NothingWithoutKeys", func(t *testing.T) {
		t.Parallel()
		b := connect(t, new(seal.Codec))
		_, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "Pipeline", marker)
		require.NoError(t, err)
		require.Contains(t, prototext.Format(b.last(t)), marker)
	})
}

// sealedHistory is the beginning of a run and its error, sealed.
func sealedHistory(t *testing.T, c *seal.Codec) *historypb.History {
	t.Helper()
	b := connect(t, c)
	_, err := b.service.RespondActivityTaskFailed(t.Context(), &workflowservice.RespondActivityTaskFailedRequest{Failure: failures(t)})
	require.NoError(t, err)
	sent, ok := b.last(t).(*workflowservice.RespondActivityTaskFailedRequest)
	require.True(t, ok)
	return &historypb.History{Events: []*historypb.HistoryEvent{
		{EventId: 1, EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{one(t, c.Encode, payload(t, marker))}},
			},
		}},
		{EventId: 2, EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED, Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
			ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{Failure: sent.GetFailure()},
		}},
	}}
}

func TestWhatComesIsOpened(t *testing.T) {
	t.Parallel()
	c := codec(t, key("k1", 1))
	sealed := sealedHistory(t, c)
	require.NotContains(t, sealed.String(), marker)

	t.Run("AHistory", func(t *testing.T) {
		t.Parallel()
		b := connect(t, c)
		b.answers <- &workflowservice.GetWorkflowExecutionHistoryResponse{History: sealed}
		events := b.client.GetWorkflowHistory(t.Context(), "w", "r", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		first, err := events.Next()
		require.NoError(t, err)
		require.True(t, proto.Equal(payloads(t, marker), first.GetWorkflowExecutionStartedEventAttributes().GetInput()))
		second, err := events.Next()
		require.NoError(t, err)
		require.True(t, proto.Equal(failures(t), second.GetActivityTaskFailedEventAttributes().GetFailure()))
	})

	t.Run("WhatARunningStepSays", func(t *testing.T) {
		t.Parallel()
		b := connect(t, c)
		b.answers <- &workflowservice.DescribeWorkflowExecutionResponse{PendingActivities: []*workflowpb.PendingActivityInfo{{
			HeartbeatDetails: &commonpb.Payloads{Payloads: []*commonpb.Payload{one(t, c.Encode, payload(t, marker))}},
			LastFailure:      sealed.GetEvents()[1].GetActivityTaskFailedEventAttributes().GetFailure(),
		}}}
		resp, err := b.client.DescribeWorkflowExecution(t.Context(), "w", "r")
		require.NoError(t, err)
		require.True(t, proto.Equal(payloads(t, marker), resp.GetPendingActivities()[0].GetHeartbeatDetails()))
		require.Equal(t, "outer "+marker, resp.GetPendingActivities()[0].GetLastFailure().GetMessage())
	})

	t.Run("OrItIsAnErrorThatNamesTheKey", func(t *testing.T) {
		t.Parallel()
		b := connect(t, new(seal.Codec))
		b.answers <- &workflowservice.GetWorkflowExecutionHistoryResponse{History: sealed}
		_, err := b.client.GetWorkflowHistory(t.Context(), "w", "r", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
		var precondition *serviceerror.FailedPrecondition
		require.ErrorAs(t, err, &precondition)
		require.ErrorContains(t, err, `encrypted with the key "k1"`)
		require.Len(t, b.got, 1, "it is not asked for again")
	})
}

// TestTasksThatCannotBeOpened go back to Temporal with the reason, and the SDK
// sees none: it would fail the workflow for good.
func TestTasksThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	mine, theirs := codec(t, key("k1", 1)), codec(t, key("k2", 2))
	history := sealedHistory(t, theirs)
	const reason = `encrypted with the key "k2"`
	task := func() *workflowservice.PollWorkflowTaskQueueResponse {
		return &workflowservice.PollWorkflowTaskQueueResponse{
			TaskToken: []byte("token"), WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: "w"}, History: history,
		}
	}
	poll := &workflowservice.PollWorkflowTaskQueueRequest{Namespace: "ci", Identity: "me"}

	t.Run("AWorkflowTask", func(t *testing.T) {
		t.Parallel()
		b := connect(t, mine)
		b.answers <- task()
		got, err := b.service.PollWorkflowTaskQueue(t.Context(), poll)
		require.NoError(t, err)
		require.Empty(t, got.GetTaskToken())
		require.Nil(t, got.GetHistory())
		failed, ok := b.last(t).(*workflowservice.RespondWorkflowTaskFailedRequest)
		require.True(t, ok)
		require.Equal(t, "token", string(failed.GetTaskToken()))
		require.Equal(t, "ci", failed.GetNamespace())
		require.Equal(t, "me", failed.GetIdentity())
		require.Contains(t, failed.GetFailure().GetMessage(), reason, "in clear, for who looks at the UI")
		require.Contains(t, b.log.lines, "refused a workflow task")
	})

	t.Run("TheNextTaskOfAWorkflow", func(t *testing.T) {
		t.Parallel()
		b := connect(t, mine)
		b.answers <- &workflowservice.RespondWorkflowTaskCompletedResponse{WorkflowTask: task()}
		got, err := b.service.RespondWorkflowTaskCompleted(t.Context(), &workflowservice.RespondWorkflowTaskCompletedRequest{Namespace: "ci"})
		require.NoError(t, err)
		require.Nil(t, got.GetWorkflowTask())
		failed, ok := b.last(t).(*workflowservice.RespondWorkflowTaskFailedRequest)
		require.True(t, ok)
		require.Equal(t, "ci", failed.GetNamespace())
	})

	t.Run("AQuery", func(t *testing.T) {
		t.Parallel()
		b := connect(t, mine)
		asked := task()
		asked.Query = &querypb.WorkflowQuery{QueryType: "status"}
		b.answers <- asked
		got, err := b.service.PollWorkflowTaskQueue(t.Context(), poll)
		require.NoError(t, err)
		require.Empty(t, got.GetTaskToken())
		answered, ok := b.last(t).(*workflowservice.RespondQueryTaskCompletedRequest)
		require.True(t, ok)
		require.Equal(t, enumspb.QUERY_RESULT_TYPE_FAILED, answered.GetCompletedType())
		require.Contains(t, answered.GetErrorMessage(), reason)
	})

	t.Run("AnActivityTask", func(t *testing.T) {
		t.Parallel()
		b := connect(t, mine)
		b.answers <- &workflowservice.PollActivityTaskQueueResponse{
			TaskToken: []byte("token"), Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{one(t, theirs.Encode, payload(t, marker))}},
		}
		got, err := b.service.PollActivityTaskQueue(t.Context(), &workflowservice.PollActivityTaskQueueRequest{Namespace: "ci"})
		require.NoError(t, err)
		require.Empty(t, got.GetTaskToken())
		failed, ok := b.last(t).(*workflowservice.RespondActivityTaskFailedRequest)
		require.True(t, ok)
		require.Contains(t, failed.GetFailure().GetMessage(), reason)
	})

	t.Run("OneThatCanIsHandedOn", func(t *testing.T) {
		t.Parallel()
		b := connect(t, theirs)
		b.answers <- task()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := b.service.PollWorkflowTaskQueue(ctx, poll)
		require.NoError(t, err)
		require.Equal(t, "token", string(got.GetTaskToken()))
		require.Contains(t, got.GetHistory().String(), marker)
		require.Len(t, b.got, 1)
	})
}
