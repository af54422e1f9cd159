package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"belay.run/internal/proc/supervisor/tree"
)

// Host runs steps on this machine. It is safe for concurrent use.
type Host struct {
	log      *zap.Logger
	id       string // of the state directory
	boot     string
	records  string
	cgroups  tree.Cgroup // below it each step has its own; "" where there are none
	noCgroup string      // why
	// controllers are those that the cgroups of steps have.
	controllers controllers
	// killBound is how long SIGKILL is tried.
	killBound time.Duration
	null      *os.File // takes the output that nobody wants

	// forking is held for reading while a supervisor is started and noted, and
	// for writing while orphans are sought, which any child not noted may be.
	forking sync.RWMutex

	mu       sync.Mutex
	running  map[*Process]struct{}
	keepers  map[*keeper]struct{} // all that live
	idle     []*keeper            // those without a step
	closed   bool
	lastReap time.Time
}

// New prepares this process to run steps: orphans of what it starts become its
// children, and it finds out whether it can make cgroups.
func New(o Options) (*Host, error) {
	if o.StateDir == "" {
		return nil, errors.New("running steps: no state directory is given")
	}
	state, err := filepath.Abs(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("finding the state directory: %w", err)
	}
	h := &Host{
		log: o.Log, id: nodeHash(state)[:12], boot: bootID(),
		records: filepath.Join(state, "proc"), killBound: killBoundDefault,
		running: map[*Process]struct{}{}, keepers: map[*keeper]struct{}{},
	}
	if h.log == nil {
		h.log = zap.NewNop()
	}
	if err := os.MkdirAll(h.records, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for records of steps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("becoming the reaper of orphans: %w", err)
	}
	if err := h.detectCgroup(o); err != nil {
		return nil, err
	}
	if h.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("opening what takes unwanted output: %w", err)
	}
	return h, nil
}

// Cgroup is the cgroup below which the steps have theirs, "" if they have none;
// then why says the reason.
func (h *Host) Cgroup() (dir, why string) {
	return string(h.cgroups), h.noCgroup
}

// Close ends all steps that still run, without grace, and gives the cgroup back.
func (h *Host) Close() error {
	for _, p := range h.processes(func(string) bool { return true }) {
		p.Kill()
		<-p.done
	}
	h.closeIdle()
	_ = h.null.Close() // nothing is written to it here
	if h.cgroups == "" {
		return nil
	}
	if err := os.Remove(string(h.cgroups)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the cgroup of this host: %w", err)
	}
	return nil
}

// processes lists the running steps whose node is wanted.
func (h *Host) processes(wanted func(node string) bool) []*Process {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []*Process
	for p := range h.running {
		if wanted(p.job.Node) {
			found = append(found, p)
		}
	}
	return found
}

// closeIdle lets the idle supervisors go.
func (h *Host) closeIdle() {
	h.mu.Lock()
	idle := h.idle
	h.idle, h.closed = nil, true
	h.mu.Unlock()
	for _, k := range idle {
		k.retire.Stop()
		h.letGo(k)
	}
}

// nowhere fills in for output that nobody wants.
func (h *Host) nowhere(ends [2]*os.File) [2]*os.File {
	for i := range ends {
		if ends[i] == nil {
			ends[i] = h.null
		}
	}
	return ends
}

// supervisors lists the process ids of the supervisors.
func (h *Host) supervisors() map[int]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	pids := make(map[int]bool, len(h.keepers))
	for k := range h.keepers {
		pids[k.pid()] = true
	}
	return pids
}

func (h *Host) add(p *Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[p] = struct{}{}
}

func (h *Host) remove(p *Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, p)
}

// EndNode ends what is left on this host of a node and of all nodes below it,
// and waits until it is gone: steps of this process by SIGTERM and their grace,
// those of a dead worker, whose supervisors are at it, too; what has no
// supervisor any more at once. "run/build/compile" does not mean
// "run/build/compile2".
//
// The error is [ErrNotProved] when all that could be found was ended and more
// may live; it is given once.
func (h *Host) EndNode(ctx context.Context, node string) error {
	if node == "" {
		return errors.New("ending a node: no node is given")
	}
	err := h.end(ctx, func(n string) bool { return within(n, node) }, nodeHash(node))
	if err != nil {
		return fmt.Errorf("ending what is left of %s: %w", node, err)
	}
	return nil
}

// Sweep ends what earlier workers on this state directory left behind, except
// what belongs to a node that is alive, and returns the number of steps that it
// found. Steps of this process are left alone.
func (h *Host) Sweep(ctx context.Context, alive func(node string) bool) (int, error) {
	own := map[string]bool{}
	for _, p := range h.processes(func(string) bool { return true }) {
		own[p.job.Node] = true
	}
	n, err := h.sweep(ctx, func(node string) bool { return !own[node] && (alive == nil || !alive(node)) })
	if err != nil {
		return n, fmt.Errorf("sweeping what earlier workers left: %w", err)
	}
	return n, nil
}
