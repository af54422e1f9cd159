package host

import (
	"context"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/version"
	"belay.run/internal/vitals"
)

// reportWithin bounds one report.
const reportWithin = 10 * time.Second

// tendVitals reports now and then how this worker is, until ctx ends, and takes
// the report away then.
func (w *Worker) tendVitals(ctx context.Context) {
	began := time.Now().UTC()
	tick := time.NewTicker(vitals.Every)
	defer tick.Stop()
	said := false
	for {
		err := w.report(ctx, began)
		if err != nil && !said && ctx.Err() == nil {
			w.log.Warn("could not report how this worker is; trying again", zap.Error(err))
		}
		said = err != nil
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
			defer cancel()
			if err := vitals.Remove(last, w.deps.store, w.ID()); err != nil {
				w.log.Debug("the report of this worker stays until it is stale", zap.Error(err))
			}
			return
		case <-tick.C:
		}
	}
}

func (w *Worker) report(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	s := w.cfg.Settings
	_, noCgroup := w.deps.processes.Cgroup()
	// A machine without a name is one less word for people.
	name, _ := os.Hostname()
	r := &vitals.Report{
		Host: w.ID(), Machine: name, Version: version.String(), At: time.Now().UTC(), StartedAt: began,
		Labels: s.Labels, OnlyLabels: s.OnlyLabels, Redis: w.deps.redis != nil, OpenFiles: vitals.OpenFiles(), NoCgroup: noCgroup,
		Disks: []vitals.Disk{},
	}
	places := [][2]string{{"state directory", s.StateDir}}
	if store := w.deps.store.String(); strings.HasPrefix(store, "/") {
		places = append(places, [2]string{"store", store})
	}
	for _, p := range places {
		if d, err := vitals.DiskAt(p[0], p[1]); err == nil { // what cannot be measured is left out
			r.Disks = append(r.Disks, d)
		}
	}
	if engine := w.deps.containers; engine != nil {
		r.Engine = engine.Address()
		if err := engine.Ping(ctx); err != nil {
			r.EngineError = err.Error()
		}
	}
	return vitals.Write(ctx, w.deps.store, r)
}
