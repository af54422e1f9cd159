package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"belay.run/dev/ports"
	"belay.run/internal/batch"
	"belay.run/internal/executor"
	"belay.run/internal/pause"
	"belay.run/internal/run"
)

const (
	// heavyRounds is how often heavy steps are measured at most, heavyWarm how long
	// light tasks run before that, and heavyFor for how long there are tasks.
	heavyRounds = 3
	heavyWarm   = 2 * time.Second
	heavyFor    = time.Minute
	// heavyStep is the name of the activity that runs a heavy step.
	heavyStep = "RunStep"
)

// heavyBench measures heavy steps beside the light tasks of a batch, which the same
// worker runs.
type heavyBench struct {
	batchBench

	// beside is what the worker's executor did in each round, while there were
	// light tasks.
	beside []executor.Status
}

// heavy measures how long heavy steps wait to be run, without light tasks, beside
// half of as many a second as the worker can do, and beside all that it can.
func (b *lightBench) heavy(ctx context.Context) (err error) {
	h := &heavyBench{}
	defer func() { err = errors.Join(err, h.close(ctx)) }()
	port, err := ports.Take(ctx, "the worker", "", "127.0.0.1", 0)
	if err != nil {
		return err
	}
	h.http = net.JoinHostPort("127.0.0.1", strconv.Itoa(port.Number))
	err = h.open(ctx)
	port.Release()
	if err != nil {
		return err
	}
	saturation := h.durable(batchCalls, h.call)
	if _, err := saturation(ctx); err != nil { // the first has no connections yet
		return err
	}
	most, err := saturation(ctx)
	if err != nil {
		return err
	}
	rounds := min(b.effort.rounds, heavyRounds)
	for _, beside := range []struct {
		name string
		rate float64
	}{{"light_heavy_half", most / 2}, {"light_heavy_full", 0}} {
		h.beside = nil
		s := subject{beside.name + "_wait", "ms", "the same steps without light tasks", h.besideLight(most, beside.rate), h.steps}
		f, err := s.measure(ctx, rounds, b.progress)
		if err != nil {
			return err
		}
		b.report.Figures = append(b.report.Figures, h.figures(beside.name, most, f)...)
	}
	return nil
}

// figures are the steps' and, beside them, how many light tasks ended in a second
// and how many might run at once.
func (h *heavyBench) figures(name string, most float64, steps Figure) []Figure {
	var rates, caps samples
	for _, s := range h.beside[1:] { // the first round is to warm up
		rates.ours, rates.theirs = append(rates.ours, s.Rate), append(rates.theirs, most)
		rates.ratios = append(rates.ratios, s.Rate/most)
		now, limit := float64(s.Concurrency), float64(s.Limit)
		caps.ours, caps.theirs, caps.ratios = append(caps.ours, now), append(caps.theirs, limit), append(caps.ratios, now/limit)
	}
	const goal = 1.5
	if name == "light_heavy_half" {
		steps = steps.atMost(goal, "the CPUs")
	}
	return []Figure{
		steps,
		subject{unit: "tasks/s", peer: "a batch with no steps beside it"}.figure(name+"_rate", rates, median),
		subject{unit: "tasks", peer: "the limit of how many light tasks run at once"}.figure(name+"_cap", caps, median),
	}
}

// besideLight measures steps while light tasks run at a rate; 0: as many as can be,
// which are no more than most.
func (h *heavyBench) besideLight(most, rate float64) func(context.Context) (float64, error) {
	n := int(heavyFor.Seconds() * most)
	if rate > 0 {
		n = int(heavyFor.Seconds() * rate)
	}
	text := lines(n, h.call)
	return func(ctx context.Context) (float64, error) {
		in, err := h.pack(ctx, n, text)
		if err != nil {
			return 0, err
		}
		in.Rate = rate
		started, err := h.control.Start(ctx, in, uuid.NewString())
		if err != nil {
			return 0, err
		}
		wait, err := h.amid(ctx)
		if err != nil {
			return 0, err
		}
		// Where it fails they have ended, which their rate shows, or they soon do.
		_ = h.control.Cancel(ctx, started.ID, "bench", "the steps are measured")
		d, err := h.control.Await(ctx, started.ID)
		switch {
		case err != nil:
			return 0, err
		case faulty(d):
			return 0, fmt.Errorf("light tasks failed: %v", d.Failures)
		}
		return wait, batch.Remove(ctx, h.store, in.Folder)
	}
}

// faulty reports whether tasks failed other than by the cancel.
func faulty(d *batch.Document) bool {
	return slices.ContainsFunc(d.Failures, func(f batch.Failure) bool { return f.Trigger != run.TriggerUser })
}

// amid measures steps when light tasks have run for a while, and notes how those do.
func (h *heavyBench) amid(ctx context.Context) (float64, error) {
	if err := pause.For(ctx, heavyWarm); err != nil {
		return 0, err
	}
	wait, err := h.steps(ctx)
	if err != nil {
		return 0, err
	}
	s, err := h.status(ctx)
	h.beside = append(h.beside, s)
	return wait, err
}

// status asks the worker what its executor does.
func (h *heavyBench) status(ctx context.Context) (s executor.Status, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.http+"/api/v1/executor/status", http.NoBody)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, fmt.Errorf("asking the worker how it does: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is of no use
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("reading how the worker does: %w", err)
	}
	return s, nil
}

// steps runs a pipeline of shell steps, and returns how long the median of them
// waited to be run.
func (h *heavyBench) steps(ctx context.Context) (float64, error) {
	c := h.stack.Temporal.Client()
	doc, err := succeed(ctx, c, sequence("run: ':'"))
	if err != nil {
		return 0, err
	}
	waits, err := pickups(ctx, c, run.ChildID(doc.ID, doc.RunKey, doc.Stages[0].Node))
	if err != nil {
		return 0, err
	}
	return median(waits), nil
}

// pickups is how long each step of a stage waited, from when it was scheduled until
// the worker had it, in milliseconds.
func pickups(ctx context.Context, c client.Client, stage string) ([]float64, error) {
	asked := map[int64]time.Time{}
	var waits []float64
	events := c.GetWorkflowHistory(ctx, stage, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", stage, err)
		}
		if e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == heavyStep {
			asked[e.GetEventId()] = e.GetEventTime().AsTime()
		}
		if at, ok := asked[e.GetActivityTaskStartedEventAttributes().GetScheduledEventId()]; ok {
			waits = append(waits, milliseconds(e.GetEventTime().AsTime().Sub(at)))
		}
	}
	if len(waits) == 0 {
		return nil, fmt.Errorf("%s ran no steps", stage)
	}
	return waits, nil
}
