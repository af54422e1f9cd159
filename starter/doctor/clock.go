package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

const (
	// skewMost is how far clocks may differ.
	skewMost = 5 * time.Second
	// clockQueue names the queue that is asked from to learn Temporal's time; each
	// question has one of its own beside it, which goes with the question.
	clockQueue = "belay-doctor"
	// clockPoll bounds that question, clockLook is how often its time is asked for.
	// Temporal refuses questions of less than two seconds.
	clockPoll, clockLook = 6 * time.Second, 50 * time.Millisecond
)

func (d *doctor) checkClock(ctx context.Context) Check {
	var found, wrong []string
	note := func(who string, skew time.Duration, err error) {
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("%s: %s", who, oneLine(err)))
		case skew.Abs() > skewMost:
			wrong = append(wrong, fmt.Sprintf("%s is %s", who, words(skew)))
		default:
			found = append(found, fmt.Sprintf("%s is %s", who, words(skew)))
		}
	}
	skew, err := d.temporalSkew(ctx)
	note("Temporal", skew, err)
	if rdb, err := d.redis(); err == nil && rdb != nil {
		before := d.cfg.Now()
		at, err := rdb.Time(ctx).Result()
		note("Redis", at.Sub(before.Add(d.cfg.Now().Sub(before)/2)), err)
	}
	// What could not be read is another check's.
	reports, _ := d.reports()
	for i := range reports {
		if ahead := reports[i].At.Sub(d.cfg.Now()); ahead > skewMost {
			note("the worker "+named(&reports[i]), ahead, nil)
		}
	}
	if len(wrong) > 0 {
		return bad("let NTP set the clocks (chrony, systemd-timesyncd), of this machine if all others differ", "against this machine, %s", strings.Join(append(wrong, found...), ", "))
	}
	return good("against this machine, %s", strings.Join(found, ", "))
}

func words(skew time.Duration) string {
	side := "ahead"
	if skew < 0 {
		side = "behind"
	}
	return skew.Abs().Round(time.Millisecond).String() + " " + side
}

// temporalSkew is how far Temporal's clock is ahead. Nothing of it tells the time
// but what it keeps of whoever asks for work: so the doctor asks, on a queue of its
// own that nothing is ever put on.
func (d *doctor) temporalSkew(ctx context.Context) (time.Duration, error) {
	service, namespace, err := d.service()
	if err != nil {
		return 0, err
	}
	me := clockQueue + "/" + uuid.NewString()
	queue := &taskqueuepb.TaskQueue{Name: me, Kind: enumspb.TASK_QUEUE_KIND_STICKY, NormalName: clockQueue}
	ctx, cancel := context.WithTimeout(ctx, clockPoll)
	var refused error
	polled := make(chan struct{})
	sent := d.cfg.Now()
	go func() {
		defer close(polled)
		_, refused = service.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{Namespace: namespace, TaskQueue: queue, Identity: me})
	}()
	defer func() {
		cancel()
		<-polled
	}()
	tick := time.NewTicker(clockLook)
	defer tick.Stop()
	for {
		resp, err := service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: namespace, TaskQueue: queue, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
		})
		if err != nil {
			return 0, fmt.Errorf("it did not tell its time: %w", err)
		}
		for _, p := range resp.GetPollers() {
			if p.GetIdentity() == me {
				return p.GetLastAccessTime().AsTime().Sub(sent), nil
			}
		}
		select {
		case <-polled:
			return 0, fmt.Errorf("it did not tell its time: %w", cmp.Or(refused, errNotAsked))
		case <-ctx.Done():
			return 0, fmt.Errorf("it did not tell its time: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
