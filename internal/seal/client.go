package seal

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Apply seals the border of a client: its connection seals what it sends and opens
// what it gets. A data converter would do so above it, and leave alone what is
// passed on as it came: the error of a child in that of its parent, a memo.
func (c *Codec) Apply(o *client.Options) {
	b := &border{codec: c, log: o.Logger}
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(b.intercept))
}

// border is that of one connection.
type border struct {
	codec *Codec
	log   sdklog.Logger // may be nil
}

func (b *border) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	sent, err := b.leave(ctx, req)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := invoke(ctx, method, sent, reply, cc, opts...); err != nil {
		return err
	}
	msg, ok := reply.(proto.Message)
	if !ok {
		return nil
	}
	answer := func(ctx context.Context, method string, req, reply proto.Message) error {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	switch in := msg.(type) {
	case *workflowservice.PollWorkflowTaskQueueResponse:
		if !b.workflowTask(ctx, origin(req), in, answer) {
			proto.Reset(in) // as if there were none
		}
		return nil
	case *workflowservice.PollActivityTaskQueueResponse:
		if !b.activityTask(ctx, origin(req), in, answer) {
			proto.Reset(in)
		}
		return nil
	case *workflowservice.RespondWorkflowTaskCompletedResponse:
		// It may bring the workflow's next task.
		if !b.workflowTask(ctx, origin(req), in.GetWorkflowTask(), answer) {
			in.WorkflowTask = nil
		}
	}
	return b.come(ctx, msg)
}

// leave returns what is sent in place of a request: a copy, since the SDK may send
// the request once more, and goes on using parts of it.
func (b *border) leave(ctx context.Context, req any) (any, error) {
	msg, ok := req.(proto.Message)
	if !ok || !b.codec.Seals() || ownedByServer(msg) {
		return req, nil
	}
	msg = proto.Clone(msg)
	if err := visitFailures(ctx, msg, func(f *failurepb.Failure) error {
		return converter.EncodeCommonFailureAttributes(converter.GetDefaultDataConverter(), f)
	}); err != nil {
		return nil, err
	}
	return msg, visitPayloads(ctx, msg, b.codec.Encode)
}

// ownedByServer reports whether a request answers Temporal itself, which has no
// key: to commands that its server sends to workers.
func ownedByServer(msg proto.Message) bool {
	switch msg.(type) {
	case *workflowservice.RespondNexusTaskCompletedRequest, *workflowservice.RespondNexusTaskFailedRequest:
		return true
	}
	return false
}

// come opens what a message holds. What cannot be opened is an error that the SDK
// does not try again.
func (b *border) come(ctx context.Context, msg proto.Message) error {
	err := b.open(ctx, msg)
	if err == nil {
		return nil
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

func (b *border) open(ctx context.Context, msg proto.Message) error {
	if err := visitPayloads(ctx, msg, b.codec.Decode); err != nil {
		return err
	}
	return visitFailures(ctx, msg, func(f *failurepb.Failure) error {
		converter.DecodeCommonFailureAttributes(converter.GetDefaultDataConverter(), f)
		f.EncodedAttributes = nil
		return nil
	})
}

func visitPayloads(ctx context.Context, msg proto.Message, f func([]*commonpb.Payload) ([]*commonpb.Payload, error)) error {
	o := proxy.VisitPayloadsOptions{
		// Temporal indexes these.
		SkipSearchAttributes: true,
		Visitor: func(_ *proxy.VisitPayloadsContext, p []*commonpb.Payload) ([]*commonpb.Payload, error) {
			return f(p)
		},
	}
	o.WellKnownAnyVisitor = func(_ *proxy.VisitPayloadsContext, p *anypb.Any) error {
		return within(p, func(inner proto.Message) error { return visitPayloads(ctx, inner, f) })
	}
	return proxy.VisitPayloads(ctx, msg, o)
}

func visitFailures(ctx context.Context, msg proto.Message, f func(*failurepb.Failure) error) error {
	o := proxy.VisitFailuresOptions{
		Visitor: func(_ *proxy.VisitFailuresContext, failure *failurepb.Failure) error { return f(failure) },
	}
	o.WellKnownAnyVisitor = func(_ *proxy.VisitFailuresContext, p *anypb.Any) error {
		return within(p, func(inner proto.Message) error { return visitFailures(ctx, inner, f) })
	}
	return proxy.VisitFailures(ctx, msg, o)
}

// within visits what is packed into p. A message of a kind that is not known here
// is left as it is: nothing of it is read either.
func within(p *anypb.Any, visit func(proto.Message) error) error {
	inner, err := p.UnmarshalNew()
	if err != nil {
		return nil //nolint:nilerr // as said above
	}
	if err := visit(inner); err != nil {
		return err
	}
	if err := p.MarshalFrom(inner); err != nil {
		return fmt.Errorf("packing a message: %w", err)
	}
	return nil
}

// keyError returns the [KeyError] in err, for its words.
func keyError(err error) string {
	if k, ok := errors.AsType[*KeyError](err); ok {
		return k.Error()
	}
	return err.Error()
}
