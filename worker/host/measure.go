package host

import (
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"belay.run/internal/metrics"
)

// status is what the metrics show of this host.
func (w *Worker) status() metrics.Host {
	h := w.Health()
	s := metrics.Host{
		Ready: h.Status == StatusReady, Stages: h.Stages, Answering: h.Ready,
		MaxStages: w.cfg.Settings.MaxStages, MaxProcesses: w.cfg.Settings.MaxProcesses,
	}
	for _, silent := range h.WaitingFor {
		s.Silent = append(s.Silent, silent.Service)
	}
	return s
}

// countHeld counts what this host holds and has not given back.
func (w *Worker) countHeld() {
	entries, err := w.deps.resources.Records.All()
	if err != nil {
		w.log.Debug("could not read all that this host holds", zap.Error(err))
	}
	held := map[string]int{}
	for i := range entries {
		held[entries[i].Kind]++
	}
	w.metrics.SetHeld(held)
}

// measureDisks looks how much room there is for workspaces, and for what is kept
// where that is a folder here.
func (w *Worker) measureDisks() {
	w.measureDisk("state", w.host.Dir())
	if dir, here := strings.CutPrefix(w.cfg.Settings.Store, "file://"); here {
		w.measureDisk("store", dir)
	}
}

func (w *Worker) measureDisk(of, dir string) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		w.log.Debug("could not look how much room there is", zap.String("dir", dir), zap.Error(err))
		return
	}
	block := uint64(fs.Bsize)
	w.metrics.SetDisk(of, fs.Bavail*block, fs.Blocks*block)
}
