package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/proc/supervisor"
	"belay.run/internal/proc/supervisor/tree"
)

// startBound is how long a supervisor may take to start a step; it takes some
// milliseconds.
const startBound = 30 * time.Second

// Start starts a job. When it returns without an error the job's program runs.
// What is wrong with the job is a [StartError]. The context bounds the start
// only: a running process ends by [Process.Terminate] or [Process.Kill].
func (h *Host) Start(ctx context.Context, job Job) (*Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	program, err := job.check()
	if err != nil {
		return nil, err
	}
	if job.PipeDelay == 0 {
		job.PipeDelay = PipeDelayDefault
	}
	p := &Process{host: h, job: job, name: stepName(job.Node), done: make(chan struct{})}
	order := supervisor.Job{
		Path: program, Argv: job.Argv, Dir: job.Dir, Env: stepEnv(job.Env, job.Node, h.id),
		Grace: job.Grace, KillBound: h.killBound, DeadMan: job.DeadMan,
	}
	if err := p.launch(&order); err != nil {
		return nil, err
	}
	ran, err := p.handOver(ctx, order)
	p.pipes.closeEnds()
	if err != nil {
		p.abandon(ran)
		return nil, err
	}
	p.pipes.carry()
	go p.watch()
	if job.Limits != (Limits{}) {
		go p.watchLimits()
	}
	return p, nil
}

// launch finds a supervisor and writes the record. The step itself cannot start
// before, so that none runs unrecorded.
func (p *Process) launch(order *supervisor.Job) (err error) {
	// Whoever sweeps sees either none of this or all of it.
	p.host.forking.RLock()
	defer p.host.forking.RUnlock()
	p.record = record{
		Node: p.job.Node, Boot: p.host.boot, Grace: p.job.Grace,
		file: filepath.Join(p.host.records, p.name+recordSuffix),
	}
	if p.host.cgroups != "" {
		p.cgroup = tree.Cgroup(filepath.Join(string(p.host.cgroups), p.name))
		if err := makeCgroup(string(p.cgroup)); err != nil {
			return startError(ErrNoResources, err, "the host could not make a cgroup: %v", err)
		}
		p.record.Cgroup = string(p.cgroup)
		p.kept = p.host.controllers.limit(string(p.cgroup), p.job.Limits)
	}
	defer func() {
		if err != nil {
			p.clear()
		}
	}()
	if p.pipes, err = plumb(p.job.Stdout, p.job.Stderr); err != nil {
		return err
	}
	if p.keeper, err = p.host.keeper(); err != nil {
		p.pipes.closeEnds()
		p.pipes.discard()
		return startError(ErrNoResources, err, "the host could not start the step's supervisor: %v", err)
	}
	if p.cgroup == "" && p.job.Limits.CPU > 0 {
		p.waitedBefore = p.waited()
	}
	order.Cgroup, order.Record = string(p.cgroup), p.record.file
	order.HoldOut, order.HoldErr = p.pipes.pipe[0], p.pipes.pipe[1]
	p.host.add(p)
	p.note()
	return nil
}

// note writes the record of a step that has a supervisor. A step
// without a record, as on a full disk, still has its cgroup or its mark.
func (p *Process) note() {
	p.record.Supervisor, p.record.Start = p.keeper.pid(), p.keeper.start
	if err := p.record.write(); err != nil {
		p.host.log.Warn("a step runs without a record", zap.String("node", p.job.Node), zap.Error(err))
	}
}

// handOver gives the supervisor its job and waits until the step has started.
// It says whether something may have been started, also when it fails.
func (p *Process) handOver(ctx context.Context, order supervisor.Job) (ran bool, err error) {
	frame, err := order.Encode()
	if err != nil {
		return false, tooBig(p.job, syscall.E2BIG)
	}
	p.keeper.setDeadlines(time.Now().Add(startBound))
	stop := context.AfterFunc(ctx, func() { p.keeper.setDeadlines(time.Unix(1, 0)) })
	defer stop()
	writeErr := p.keeper.assign(frame, p.host.nowhere(p.pipes.ends)) // if it died, the report says more
	report, err := p.keeper.next()
	switch {
	case err != nil && ctx.Err() != nil:
		return true, fmt.Errorf("starting a process: %w", context.Cause(ctx))
	case err != nil:
		err = errors.Join(err, writeErr)
		return true, startError(ErrSupervisor, err, "the step's supervisor did not come up: %v", err)
	case report.Stage == supervisor.Failed:
		return false, execError(p.job, order.Path, syscall.Errno(report.Value))
	case report.Stage != supervisor.Started:
		return true, startError(ErrSupervisor, supervisor.ErrReport, "the step's supervisor said %q", report.Stage)
	case !stop():
		return true, fmt.Errorf("starting a process: %w", context.Cause(ctx))
	}
	p.keeper.setDeadlines(time.Time{})
	p.pid = report.Value
	p.mu.Lock()
	p.started = true
	p.mu.Unlock()
	return true, nil
}

// abandon ends a step that did not start, or not in time.
func (p *Process) abandon(ran bool) {
	p.keeper.kill()
	p.host.letGo(p.keeper)
	if !ran {
		p.clear()
	} else if end := p.takeOver(); !end.gone {
		p.host.log.Error("a step that failed to start could not be ended", zap.String("node", p.job.Node), zap.String("note", end.note))
	}
	p.pipes.discard()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.host.remove(p)
	close(p.done)
}

// clear removes the cgroup and the record of a step of which nothing lives.
func (p *Process) clear() {
	if p.cgroup != "" {
		if err := p.cgroup.Remove(); err != nil {
			p.host.log.Warn("the cgroup of a step stays for the next sweep", zap.Error(err))
		}
	}
	if err := os.Remove(p.record.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.host.log.Warn("the record of a step stays for the next sweep", zap.Error(err))
	}
}
