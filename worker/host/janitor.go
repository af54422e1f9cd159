package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/config"
	"belay.run/internal/run"
)

const (
	// tendJanitorEvery is how often what is leaked is counted, and the schedule
	// asked for that could not be had before.
	tendJanitorEvery = 15 * time.Second
	// scheduleWithin bounds the making of the schedule, countWithin a count.
	scheduleWithin = 10 * time.Second
	countWithin    = 10 * time.Second
	// catchUp is how long a pass may be late: one that was missed is made up for
	// by the next.
	catchUp = 10 * time.Second
)

// tendJanitor has the janitor scheduled and counts what is leaked, until ctx ends.
func (w *Worker) tendJanitor(ctx context.Context) {
	tick := time.NewTicker(tendJanitorEvery)
	defer tick.Stop()
	scheduled, said := w.cfg.Settings.Janitor == 0, false
	for {
		if !scheduled {
			err := scheduleJanitor(ctx, w.deps.temporal, w.cfg.Settings.Janitor)
			scheduled = err == nil
			if err != nil && !said && ctx.Err() == nil {
				w.log.Warn("could not have the janitor scheduled; trying again", zap.Error(err))
				said = true
			}
		}
		w.announce(ctx)
		w.countLeaked(ctx)
		w.countHeld()
		w.measureDisks()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// newNotifier makes what tells people of leaks. Its commands run in a directory
// of their own.
func (w *Worker) newNotifier(environ []string) *activities.Notifier {
	dir := filepath.Join(w.host.Dir(), "notices")
	w.clear(dir)
	return activities.NewNotifier(activities.NotifierConfig{
		Client: w.deps.temporal.Client, Namespace: w.deps.temporal.Namespace, Proc: w.deps.processes, Dir: dir,
		Secrets: w.deps.secrets, Environment: environ, Logger: w.log,
	})
}

// clear removes a directory in which nothing outlives its worker, with what an
// earlier one left there.
func (w *Worker) clear(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		w.log.Warn("could not remove what an earlier worker left", zap.Error(err))
	}
}

// announce says under which queue this host is found since this boot, so that
// what it has from an earlier one can be given back.
func (w *Worker) announce(ctx context.Context) {
	if err := w.deps.ledger.Announce(ctx, w.ID(), w.Queue()); err != nil {
		w.log.Debug("could not announce this host; later", zap.Error(err))
	}
}

// countLeaked shows how much the ledger has as leaked, which the janitor's passes
// keep right. While Redis is away the last count stands.
func (w *Worker) countLeaked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	n, err := w.deps.ledger.Leaked(ctx)
	if err != nil {
		w.log.Debug("could not count what is leaked", zap.Error(err))
		return
	}
	w.metrics.SetLeaked(n)
}

// scheduleJanitor makes the schedule, or brings one that is there up to date. One
// that an operator has paused stays so.
func scheduleJanitor(ctx context.Context, t *config.Temporal, every time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, scheduleWithin)
	defer cancel()
	want := client.ScheduleOptions{
		ID:            activities.JanitorSchedule,
		Spec:          client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}},
		Action:        janitorAction(),
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchUp,
		Note:          "Belay: releases what closed runs left behind",
	}
	_, err := t.ScheduleClient().Create(ctx, want)
	if err == nil {
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return fmt.Errorf("making the schedule %s: %w", want.ID, err)
	}
	handle := t.ScheduleClient().GetHandle(ctx, want.ID)
	is, err := handle.Describe(ctx)
	if err != nil {
		return fmt.Errorf("reading the schedule %s: %w", want.ID, err)
	}
	if sameSchedule(&is.Schedule, every) {
		return nil
	}
	err = handle.Update(ctx, client.ScheduleUpdateOptions{DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
		s := in.Description.Schedule
		s.Spec = &want.Spec
		s.Action = want.Action
		if s.Policy == nil {
			s.Policy = &client.SchedulePolicies{}
		}
		s.Policy.Overlap, s.Policy.CatchupWindow = want.Overlap, want.CatchupWindow
		return &client.ScheduleUpdate{Schedule: &s}, nil
	}})
	if err != nil {
		return fmt.Errorf("updating the schedule %s: %w", want.ID, err)
	}
	return nil
}

func janitorAction() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID: run.JanitorID, Workflow: activities.JanitorWorkflow, Args: []any{activities.JanitorInput{}},
		TaskQueue: run.QueueWorkflows, WorkflowTaskTimeout: activities.GroupTaskTimeout,
		StaticSummary: "releases what closed runs left behind",
	}
}

// sameSchedule reports whether a schedule is as this worker would have it.
func sameSchedule(s *client.Schedule, every time.Duration) bool {
	action, ok := s.Action.(*client.ScheduleWorkflowAction)
	want := janitorAction()
	return ok && action.ID == want.ID && action.Workflow == want.Workflow && action.TaskQueue == want.TaskQueue &&
		s.Spec != nil && len(s.Spec.Intervals) == 1 && s.Spec.Intervals[0].Every == every &&
		s.Policy != nil && s.Policy.Overlap == enumspb.SCHEDULE_OVERLAP_POLICY_SKIP
}
