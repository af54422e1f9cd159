package types

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"belay.run/internal/task"
)

// noop does nothing, for trials and measurements.
type noop struct{}

// noopLongest is how long a noop may take.
const noopLongest = time.Hour

func (noop) Name() string { return "noop" }

func (noop) Doc() string { return "Does nothing, and succeeds." }

func (noop) Params() []task.Param {
	return []task.Param{{Name: "sleep", Kind: task.Duration, Doc: "How long it takes, up to 1h; nothing by default."}}
}

func (noop) Outputs() []task.Field { return nil }

func (n noop) Prepare(with json.RawMessage) (task.Job, error) {
	if len(with) == 0 {
		return nap(0), nil
	}
	a := task.ReadArgs(n.Params(), with)
	d := a.Duration("sleep", 0, 0, noopLongest)
	return nap(d), a.Err()
}

type nap time.Duration

func (nap) Target() string { return "" }

func (n nap) Run(ctx context.Context, _ task.Origin) (task.Output, error) {
	if n == 0 {
		return nil, nil
	}
	timer := time.NewTimer(time.Duration(n))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("sleeping for %s: %w", time.Duration(n), context.Cause(ctx))
	}
}
