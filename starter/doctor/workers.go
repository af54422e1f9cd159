package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/run"
	"belay.run/internal/vitals"
)

const (
	// polledWithin is how long ago a worker may have asked for work that lives.
	polledWithin = 2 * time.Minute
	// freeLeast is the part of a disk, and of its files, that is to be free.
	freeLeast = 0.1
	// roomEnough is how much free space is enough on any disk.
	roomEnough = 20 << 30
	// filesLeast is how many files a worker is to be able to open.
	filesLeast = 4096
)

// queue is a task queue and who takes from it.
type queue struct {
	name string
	// hosts are the ids of the hosts, or whatever else those who take are called.
	hosts     map[string]bool
	versioned bool
}

// readQueues asks who takes from the queues that all workers share.
func (d *doctor) readQueues(ctx context.Context) ([]queue, error) {
	service, namespace, err := d.service()
	if err != nil {
		return nil, err
	}
	var out []queue
	for name, kind := range map[string]enumspb.TaskQueueType{
		run.QueueWorkflows: enumspb.TASK_QUEUE_TYPE_WORKFLOW, run.StepsQueue(""): enumspb.TASK_QUEUE_TYPE_ACTIVITY,
		run.QueueLight: enumspb.TASK_QUEUE_TYPE_ACTIVITY, run.QueueBatch: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
	} {
		resp, err := service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: name, Kind: enumspb.TASK_QUEUE_KIND_NORMAL}, TaskQueueType: kind,
		})
		if err != nil {
			return nil, fmt.Errorf("asking who takes from %s: %w", name, err)
		}
		q := queue{name: name, hosts: map[string]bool{}}
		for _, p := range resp.GetPollers() {
			if d.cfg.Now().Sub(p.GetLastAccessTime().AsTime()) > polledWithin {
				continue // it has stopped
			}
			q.hosts[hostOf(p.GetIdentity())] = true
			q.versioned = q.versioned || p.GetDeploymentOptions().GetWorkerVersioningMode() == enumspb.WORKER_VERSIONING_MODE_VERSIONED
		}
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b queue) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// hostOf is the host's id in the identity of a worker, belay/<host>@<machine>.
func hostOf(identity string) string {
	id, ours := strings.CutPrefix(identity, "belay/")
	if !ours {
		return identity
	}
	id, _, _ = strings.Cut(id, "@")
	return id
}

func (d *doctor) checkWorkers(context.Context) Check {
	queues, err := d.queues()
	if err != nil {
		return unknown(err, "may this user look at task queues?")
	}
	// Without reports nobody is known to keep to its labels.
	reports, _ := d.reports()
	picky := slices.ContainsFunc(reports, func(r vitals.Report) bool { return r.OnlyLabels })
	var counts, nobody []string
	for _, q := range queues {
		counts = append(counts, fmt.Sprintf("%d take from %s", len(q.hosts), q.name))
		if len(q.hosts) == 0 && (q.name != run.StepsQueue("") || !picky) {
			nobody = append(nobody, q.name)
		}
	}
	if len(nobody) > 0 {
		return bad("start a worker with the same TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, and look at its /readyz",
			"nobody takes from %s", strings.Join(nobody, ", "))
	}
	return good("%s", strings.Join(counts, ", "))
}

func (d *doctor) checkVersioning(context.Context) Check {
	queues, err := d.queues()
	if err != nil {
		return unknown(err, "may this user look at task queues?")
	}
	for _, q := range queues {
		if q.versioned {
			return good("on: runs stay with the version that they began on, or follow, as the deployment says")
		}
	}
	return advised("nothing has to be done: histories of earlier versions replay; it can be turned on where runs shall end on the version that they began on",
		"off: a run goes on with whichever worker takes it")
}

// fleet is what the workers report, or the check that says why that is not known.
func (d *doctor) fleet() ([]vitals.Report, *Check) {
	reports, err := d.reports()
	if err != nil {
		c := unknown(err, "see the check of the store")
		return nil, &c
	}
	if len(reports) == 0 {
		c := bad("start a worker; if one runs, it reports to another store: see the check store_shared", "no worker reports to the store")
		return nil, &c
	}
	return reports, nil
}

func (d *doctor) checkVersions(context.Context) Check {
	reports, c := d.fleet()
	if c != nil {
		return *c
	}
	counts := map[string]int{}
	for _, r := range reports {
		counts[r.Version]++
	}
	var words []string
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s (%d)", v, counts[v]))
	}
	if len(counts) > 1 || counts[d.cfg.Version] == 0 {
		return advised("right during an upgrade; neighbouring versions work together", "workers: %s; this program: %s", strings.Join(words, ", "), d.cfg.Version)
	}
	return good("workers: %s", strings.Join(words, ", "))
}

func (d *doctor) checkContainers(context.Context) Check {
	reports, c := d.fleet()
	if c != nil {
		return *c
	}
	var silent, none []string
	for i := range reports {
		r := &reports[i]
		switch {
		case r.EngineError != "":
			silent = append(silent, fmt.Sprintf("%s at %s: %s", named(r), r.Engine, r.EngineError))
		case r.Engine == "":
			none = append(none, named(r))
		}
	}
	switch {
	case len(silent) > 0:
		return bad("is the engine running, and may the worker's user use its socket? BELAY_CONTAINER_ENGINE=off says that there is none", "no answer: %s", strings.Join(silent, "; "))
	case len(none) > 0:
		return advised("steps with an image and services need one: BELAY_CONTAINER_ENGINE", "%d of %d workers have no engine: %s", len(none), len(reports), strings.Join(none, ", "))
	}
	return good("the engines of %d workers answer", len(reports))
}

func (d *doctor) checkDisk(context.Context) Check {
	reports, c := d.fleet()
	if c != nil {
		return *c
	}
	var full []string
	least, where := 1.0, ""
	for i := range reports {
		for _, disk := range reports[i].Disks {
			free := part(disk.Free, disk.Bytes)
			files := part(disk.FreeFiles, disk.Files)
			if free < least {
				least, where = free, named(&reports[i])
			}
			switch {
			case free < freeLeast && disk.Free < roomEnough:
				full = append(full, fmt.Sprintf("%s has %.0f%% left for its %s %s", named(&reports[i]), 100*free, disk.What, disk.Path))
			case files < freeLeast:
				full = append(full, fmt.Sprintf("%s has %.0f%% of the inodes left for its %s %s", named(&reports[i]), 100*files, disk.What, disk.Path))
			}
		}
	}
	if len(full) > 0 {
		return bad("make room: what is not in use of cache/ may go, and retention_logs, retention_artifacts and retention_batches may be shorter", "%s", strings.Join(full, "; "))
	}
	if where == "" {
		return good("not measured")
	}
	return good("%.0f%% free at the least, on %s", 100*least, where)
}

// part is how much is left; of what is not bounded, all.
func part(free, all uint64) float64 {
	if all == 0 {
		return 1
	}
	return float64(free) / float64(all)
}

func (d *doctor) checkLimits(context.Context) Check {
	reports, c := d.fleet()
	if c != nil {
		return *c
	}
	var low, loose []string
	for i := range reports {
		r := &reports[i]
		if r.OpenFiles > 0 && r.OpenFiles < filesLeast {
			low = append(low, fmt.Sprintf("%s may open %d files", named(r), r.OpenFiles))
		}
		if r.NoCgroup != "" {
			loose = append(loose, fmt.Sprintf("%s (%s)", named(r), r.NoCgroup))
		}
	}
	switch {
	case len(low) > 0:
		return bad(fmt.Sprintf("let them open %d at the least: LimitNOFILE= of the unit, ulimits of the container, ulimit -Hn", filesLeast), "%s", strings.Join(low, "; "))
	case len(loose) > 0:
		return advised("a process that leaves its step may outlive a killed worker there: docs/processes.md says what a cgroup takes",
			"%d of %d workers run steps without a cgroup: %s", len(loose), len(reports), strings.Join(loose, "; "))
	}
	return good("open files and cgroups of %d workers are as they should be", len(reports))
}

func named(r *vitals.Report) string {
	if r.Machine == "" {
		return r.Host
	}
	return r.Host + "@" + r.Machine
}
