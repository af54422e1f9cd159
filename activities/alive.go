package activities

import (
	"context"
	"fmt"
	"maps"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
)

// How long a host may show no sign of life before it counts as lost. Workers
// send Temporal a heartbeat every WorkerHeartbeat; where the server keeps none,
// only the ends of long polls are seen, and those last up to a minute.
const (
	WorkerHeartbeat = 5 * time.Second
	lostAfter       = 12 * time.Second
	lostAfterPolls  = 80 * time.Second
	lookEvery       = 500 * time.Millisecond
)

// HostAlive reports whether the worker of a host queue lives: whether its
// worker heartbeat, or else its polling, moves on while one watches. It compares
// each clock with itself only, so no skew between machines can fake a death.
func (c *Control) HostAlive(ctx context.Context, queue string) (bool, error) {
	unstick(ctx, c.client, c.namespace)
	first, beats, err := c.signsOfLife(ctx, queue)
	if err != nil {
		return false, err
	}
	patience := lostAfterPolls
	if beats {
		patience = lostAfter
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-deadline.C:
			return false, nil
		case <-tick.C:
			activity.RecordHeartbeat(ctx)
			now, _, err := c.signsOfLife(ctx, queue)
			if err != nil {
				return false, err
			}
			if !maps.Equal(first, now) && len(now) > 0 {
				return true, nil
			}
		}
	}
}

// signsOfLife is what the server knows of a queue's workers: per worker the
// last time it was heard of, and whether worker heartbeats are among it.
func (c *Control) signsOfLife(ctx context.Context, queue string) (signs map[string]int64, beats bool, err error) {
	signs = make(map[string]int64)
	svc := c.client.WorkflowService()
	workers, err := svc.ListWorkers(ctx, &workflowservice.ListWorkersRequest{
		Namespace: c.namespace, Query: fmt.Sprintf("TaskQueue = '%s'", queue),
	})
	if err == nil { // older servers keep no worker heartbeats; polls are asked below
		for _, w := range workers.GetWorkers() {
			if w.GetStatus() == enumspb.WORKER_STATUS_RUNNING {
				if at, err := c.heartbeatOf(ctx, w.GetWorkerInstanceKey()); err == nil {
					signs["worker "+w.GetWorkerInstanceKey()] = at
					beats = true
				}
			}
		}
	}
	if beats {
		return signs, true, nil
	}
	polls, err := svc.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace:     c.namespace,
		TaskQueue:     &taskqueuepb.TaskQueue{Name: queue},
		TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
	})
	if err != nil {
		return nil, false, fmt.Errorf("looking who polls %s: %w", queue, err)
	}
	for _, p := range polls.GetPollers() {
		signs["poller "+p.GetIdentity()] = p.GetLastAccessTime().AsTime().UnixNano()
	}
	return signs, false, nil
}

// heartbeatOf is when a worker last sent a heartbeat, by its own clock.
func (c *Control) heartbeatOf(ctx context.Context, worker string) (int64, error) {
	resp, err := c.client.WorkflowService().DescribeWorker(ctx, &workflowservice.DescribeWorkerRequest{
		Namespace: c.namespace, WorkerInstanceKey: worker,
	})
	if err != nil {
		return 0, fmt.Errorf("asking for the heartbeat of worker %s: %w", worker, err)
	}
	return resp.GetWorkerInfo().GetWorkerHeartbeat().GetHeartbeatTime().AsTime().UnixNano(), nil
}
