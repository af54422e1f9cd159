package activities

import "time"

// Meter hears what activities do, for metrics. *metrics.Metrics is one. Its
// methods return at once, and may be called concurrently.
type Meter interface {
	// Waited is told how long a stage or step waited for what measure names.
	Waited(queue string, took time.Duration)
	// Stopped is told how long the end of a step took that was told to end.
	Stopped(took time.Duration)
	// Running is told of steps that begin to run processes, or, negative, end.
	Running(n int)
	// Logged is told how much an attempt printed, and how much of that is lost.
	Logged(printed, dropped int64)
	// LeaseLost is told of a claim or lock that became another's while it was
	// held, by its kind.
	LeaseLost(kind string)
	// Released is told of each resource that was given back, ReleaseFailed of
	// each try that failed.
	Released(kind string)
	ReleaseFailed(kind string)
}

// leaseClaim is the kind of lease that a claim is.
const leaseClaim = "claim"

// meterOr is m, or one that hears nothing.
func meterOr(m Meter) Meter {
	if m == nil {
		return deaf{}
	}
	return m
}

type deaf struct{}

func (deaf) Waited(string, time.Duration) {}
func (deaf) Stopped(time.Duration)        {}
func (deaf) Running(int)                  {}
func (deaf) Logged(int64, int64)          {}
func (deaf) LeaseLost(string)             {}
func (deaf) Released(string)              {}
func (deaf) ReleaseFailed(string)         {}
