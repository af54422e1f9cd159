package spec

import "time"

// Limits bound what an attempt of a step may use; 0 is no bound. One that goes
// over is ended, and fails with limit_exceeded.
type Limits struct {
	// Memory is how many bytes its processes may hold together.
	Memory int64 `json:"memory,omitempty"`
	// PIDs is how many processes and threads it may have at once.
	PIDs int `json:"pids,omitempty"`
	// CPUTime is how long its processes may compute, all together.
	CPUTime time.Duration `json:"cpu_time,omitempty"`
	// Output is how many bytes it may print.
	Output int64 `json:"output,omitempty"`
	// Disk is how many bytes the workspace, the home and the temporary files of
	// its stage may take while it runs.
	Disk int64 `json:"disk,omitempty"`
}

// Bounds of the limits that a file may set.
const (
	minOutput  = 1 << 10
	minMemory  = 1 << 20
	minCPUTime = 100 * time.Millisecond
	maxSize    = 1 << 40
	maxPIDs    = 1 << 20
)

type rawLimits struct {
	memory, output, disk val[int64]
	pids                 val[int]
	cpuTime              val[time.Duration]
}

func limitsObject() *object[rawLimits] {
	return &object[rawLimits]{
		name:  "limits",
		def:   "limits",
		later: []string{"outputs"},
		never: map[string]string{"cpu": "cpu_time is how long it may compute, such as 10m"},
		fields: []field[rawLimits]{
			key("memory", size(minMemory), func(l *rawLimits) *val[int64] { return &l.memory }),
			key("pids", integer(maxPIDs), func(l *rawLimits) *val[int] { return &l.pids }),
			key("cpu_time", duration(minCPUTime), func(l *rawLimits) *val[time.Duration] { return &l.cpuTime }),
			key("output", size(minOutput), func(l *rawLimits) *val[int64] { return &l.output }),
			key("disk", size(minMemory), func(l *rawLimits) *val[int64] { return &l.disk }),
		},
	}
}

// limits are those of a step, nil where it sets none.
func (raw rawLimits) limits() *Limits {
	l := Limits{Memory: raw.memory.v, PIDs: raw.pids.v, CPUTime: raw.cpuTime.v, Output: raw.output.v, Disk: raw.disk.v}
	if l == (Limits{}) {
		return nil
	}
	return &l
}
