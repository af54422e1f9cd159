// Package vitals is what workers say of themselves and of their machines. It lies
// in the store, which whoever asks reaches too: so it also tells who shares it.
package vitals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"belay.run/internal/store"
)

const (
	// Every is how often a worker reports.
	Every = 30 * time.Second
	// Stale is after how long without a report a worker counts as gone.
	Stale = 3 * time.Minute
	// folder is where reports lie, one a host.
	folder = "workers"
	// maxReport bounds what is read of one, maxReports how many are.
	maxReport, maxReports = 64 << 10, 1000
)

// Report is what a worker says.
type Report struct {
	// Host is its id, Machine the name of the machine.
	Host      string    `json:"host"`
	Machine   string    `json:"machine"`
	Version   string    `json:"version"`
	At        time.Time `json:"at"`
	StartedAt time.Time `json:"started_at"`
	// Labels are those of stages that it takes; OnlyLabels: it takes no others.
	Labels     []string `json:"labels,omitempty"`
	OnlyLabels bool     `json:"only_labels,omitempty"`
	// Redis is whether it has one.
	Redis bool `json:"redis"`
	// Engine is where its container engine is, "" where it has none; EngineError
	// why that does not answer.
	Engine      string `json:"engine,omitempty"`
	EngineError string `json:"engine_error,omitempty"`
	Disks       []Disk `json:"disks"`
	// OpenFiles is how many files it may have open, zero where that is not known.
	OpenFiles uint64 `json:"open_files,omitempty"`
	// NoCgroup is why its steps run without a cgroup, "" where they have one.
	NoCgroup string `json:"no_cgroup,omitempty"`
}

// Disk is what a file system has left.
type Disk struct {
	// What is kept there: "state directory" or "store".
	What  string `json:"what"`
	Path  string `json:"path"`
	Bytes uint64 `json:"bytes"`
	Free  uint64 `json:"free"`
	// Files is how many it may have, zero where that is not bounded.
	Files     uint64 `json:"files,omitempty"`
	FreeFiles uint64 `json:"free_files,omitempty"`
}

func key(host string) string { return folder + "/" + host }

// Write puts a report in the place of the host's last one.
func Write(ctx context.Context, st store.Store, r *Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the report of this worker: %w", err)
	}
	if _, err := st.Put(ctx, key(r.Host), bytes.NewReader(text), maxReport); err != nil {
		return fmt.Errorf("writing the report of this worker: %w", err)
	}
	return nil
}

// Remove takes the report of a worker away that stops.
func Remove(ctx context.Context, st store.Store, host string) error {
	if err := st.Delete(ctx, key(host)); err != nil {
		return fmt.Errorf("removing the report of this worker: %w", err)
	}
	return nil
}

// Read returns the reports of the workers that live, sorted by host.
func Read(ctx context.Context, st store.Store, now time.Time) ([]Report, error) {
	var out []Report
	for info, err := range st.List(ctx, folder) {
		if err != nil {
			return nil, fmt.Errorf("listing the reports of workers: %w", err)
		}
		r, err := read(ctx, st, info.Key)
		if errors.Is(err, store.ErrNotFound) {
			continue // it has just stopped
		}
		if err != nil {
			return nil, fmt.Errorf("reading the report %s: %w", info.Key, err)
		}
		if now.Sub(r.At) < Stale && len(out) < maxReports {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b Report) int { return strings.Compare(a.Host, b.Host) })
	return out, nil
}

func read(ctx context.Context, st store.Store, key string) (_ *Report, err error) {
	f, err := st.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var r Report
	if err := json.NewDecoder(io.LimitReader(f, maxReport)).Decode(&r); err != nil {
		return nil, err
	}
	return &r, nil
}
