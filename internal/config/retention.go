package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Retention is how long what closed runs left is kept; zero keeps it for ever.
type Retention struct {
	Logs      time.Duration
	Artifacts time.Duration
	Batches   time.Duration
	Records   time.Duration
	Audit     time.Duration
}

const (
	day = 24 * time.Hour
	// retentionLeast is more than any clock is wrong by, and recordsLeast how long
	// the janitor looks for runs that closed without a word.
	retentionLeast = day
	recordsLeast   = 7 * day
	retentionMost  = 100 * 365 * day
)

func retentionSettings() []Setting {
	return []Setting{
		{
			Name: "retention_logs", Env: "BELAY_RETENTION_LOGS", Default: "30d",
			Help: "How long the logs of a closed run are kept, counted from the last line. 0: for ever.",
			set:  keptFor(retentionLeast, func(r *Retention) *time.Duration { return &r.Logs }),
		},
		{
			Name: "retention_artifacts", Env: "BELAY_RETENTION_ARTIFACTS", Default: "30d",
			Help: "How long packed sources, artifacts and large outputs are kept that no open run can need. 0: for ever.",
			set:  keptFor(retentionLeast, func(r *Retention) *time.Duration { return &r.Artifacts }),
		},
		{
			Name: "retention_batches", Env: "BELAY_RETENTION_BATCHES", Default: "30d",
			Help: "How long the tasks and results of a closed batch are kept. 0: for ever.",
			set:  keptFor(retentionLeast, func(r *Retention) *time.Duration { return &r.Batches }),
		},
		{
			Name: "retention_records", Env: "BELAY_RETENTION_RECORDS", Default: "7d",
			Help: "How long it is known what a closed run held that has given back all; 7d at the least. 0: for ever.",
			set:  keptFor(recordsLeast, func(r *Retention) *time.Duration { return &r.Records }),
		},
		{
			Name: "retention_audit", Env: "BELAY_RETENTION_AUDIT", Default: "90d",
			Help: "How long the entries of the audit of duplicates are kept, of which each tenant has 50,000 at the most. 0: as long as there is room.",
			set:  keptFor(retentionLeast, func(r *Retention) *time.Duration { return &r.Audit }),
		},
	}
}

// keptFor sets how long something is kept: days, or any other duration.
func keptFor(least time.Duration, field func(*Retention) *time.Duration) func(*Config, value) error {
	return func(c *Config, v value) error {
		d, err := parseDays(v.text)
		if err != nil || d != 0 && d < least || d > retentionMost {
			return fmt.Errorf("%q: want 0, or a duration such as 30d or 720h, %dd at the least", v.text, least/day)
		}
		*field(&c.Retention) = d
		return nil
	}
}

func parseDays(text string) (time.Duration, error) {
	if text == "0" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(text)
}
