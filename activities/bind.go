package activities

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"belay.run/internal/measure"
	"belay.run/internal/workspace"
)

// Binder takes stages onto this host. It is registered on the shared step
// queues of the host's labels.
type Binder struct {
	host  *workspace.Host
	meter Meter
}

// NewBinder returns the Binder of a host. The meter, which may be nil, hears how
// long stages waited for it.
func NewBinder(host *workspace.Host, meter Meter) *Binder {
	return &Binder{host: host, meter: meterOr(meter)}
}

// Bind records that the stage of owner lives on this host from now on, and
// answers with the queue on which its steps are to be scheduled.
func (b *Binder) Bind(ctx context.Context, owner Owner) (*Binding, error) {
	_, err := b.host.Bind(ctx, workspace.Binding{
		RunKey: owner.RunKey, Node: owner.Node, WorkflowID: owner.WorkflowID, RunID: owner.RunID, At: time.Now(),
	})
	if err != nil {
		return nil, fmt.Errorf("taking stage %s onto host %s: %w", owner.Node, b.host.ID(), err)
	}
	info := activity.GetInfo(ctx)
	b.meter.Waited(measure.Host, info.StartedTime.Sub(info.ScheduledTime))
	return &Binding{Host: b.host.ID(), Queue: b.host.Queue()}, nil
}
