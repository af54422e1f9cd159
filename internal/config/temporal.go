package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/seal"
)

const (
	// tryTimeout bounds one try to reach Temporal.
	tryTimeout = 3 * time.Second

	retryFirst = 100 * time.Millisecond
	retryLast  = 5 * time.Second
)

// TemporalOptions are what [DialTemporal] cannot find in the environment.
type TemporalOptions struct {
	// Environ is the environment, as [os.Environ] gives it. Nil means that of
	// the process.
	Environ []string
	// Logger takes the SDK's log lines; nil drops them.
	Logger *zap.Logger
	// Metrics hears what the SDK measures; nil does not.
	Metrics client.MetricsHandler
	// Identity names this client in Temporal's histories. Empty: the SDK's.
	Identity string
	// Codec seals what goes to Temporal and opens what comes from there. Nil seals
	// nothing, and says of what is sealed which key it lacks.
	Codec *seal.Codec
	// APIKeyFile holds the API key, and is read again for each call. Empty: the key
	// is that of the environment, if there is one.
	APIKeyFile string
	// WorkerHeartbeat is how often a worker on this connection tells Temporal
	// that it lives. Zero: the SDK's default.
	WorkerHeartbeat time.Duration
	// Patience is how long to try. Zero: until the context ends.
	Patience time.Duration
	// Waiting is told of each try that failed, and how long it is until the
	// next; it may be nil.
	Waiting func(err *UnreachableError, next time.Duration)
}

// Temporal is a connection to Temporal.
type Temporal struct {
	client.Client

	Address   string
	Namespace string
}

// DialTemporal connects to the Temporal that the environment and the profile
// file of Temporal's own tools describe, and makes sure that it answers and has
// the namespace. It tries again with growing pauses for as long as the options
// allow; what is left then is an [UnreachableError]. What waiting cannot mend,
// a wrong key for instance, ends a bounded wait at once.
func DialTemporal(ctx context.Context, o TemporalOptions) (*Temporal, error) {
	opts, err := clientOptions(o)
	if err != nil {
		return nil, err
	}
	c, err := client.NewLazyClient(opts)
	if err != nil {
		return nil, fmt.Errorf("setting up the connection to Temporal at %s: %w", opts.HostPort, err)
	}
	t := &Temporal{Client: c, Address: opts.HostPort, Namespace: opts.Namespace}
	if err := t.await(ctx, o); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// await tries until Temporal answers.
func (t *Temporal) await(ctx context.Context, o TemporalOptions) error {
	if o.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Patience)
		defer cancel()
	}
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		err := t.try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || (o.Patience > 0 && !transient(err)) {
			return err
		}
		if o.Waiting != nil {
			o.Waiting(err, wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// Check makes sure that Temporal answers and has the namespace, or says in an
// [UnreachableError] what is wrong.
func (t *Temporal) Check(ctx context.Context) error {
	if err := t.try(ctx); err != nil {
		return err
	}
	return nil
}

func (t *Temporal) try(ctx context.Context) *UnreachableError {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	_, err := t.CheckHealth(ctx, &client.CheckHealthRequest{})
	if err == nil {
		_, err = t.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.Namespace})
		if is[*serviceerror.PermissionDenied](err) {
			err = nil // one may start workflows without being allowed to look at the namespace
		}
	}
	if err == nil {
		return nil
	}
	return &UnreachableError{Service: "Temporal", Address: t.Address, Check: t.whatToCheck(err), Err: err}
}

// whatToCheck says what a person can do about err.
func (t *Temporal) whatToCheck(err error) string {
	switch {
	case is[*serviceerror.NamespaceNotFound](err), is[*serviceerror.NotFound](err):
		return fmt.Sprintf("is the namespace %q right? it is set by TEMPORAL_NAMESPACE", t.Namespace)
	case is[*serviceerror.PermissionDenied](err):
		return "is TEMPORAL_API_KEY right for this address and namespace?"
	}
	return "is it running, are TEMPORAL_ADDRESS and TEMPORAL_PROFILE right, and is TLS on where it must be?"
}

// transient reports whether the same try may succeed later.
func transient(err *UnreachableError) bool {
	return !is[*serviceerror.NamespaceNotFound](err) && !is[*serviceerror.NotFound](err) &&
		!is[*serviceerror.PermissionDenied](err)
}

// is reports whether err is of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
