package executor

import "time"

// WithFiles has a process that may open no more files than for n tasks.
func (c Config) WithFiles(n int) Config {
	c.files = n
	return c
}

// WithDelays has goroutines wait for a CPU as long as delays says.
func (c Config) WithDelays(delays func() time.Duration) Config {
	c.delays = delays
	return c
}

// Calm has no goroutine wait for a CPU, unless the test says otherwise: how busy the
// machine is must not matter.
func (c Config) Calm() Config {
	if c.delays == nil {
		c.delays = func() time.Duration { return 0 }
	}
	return c
}

// Remembered is how many targets and tenants are remembered, Lanes how many lanes
// there are: none where nothing waits.
func (e *Executor) Remembered() (targets, tenants, lanes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.targets.known), len(e.tenants.known), len(e.lanes)
}
