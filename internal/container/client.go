package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"belay.run/internal/pause"
	"belay.run/internal/proc"
)

// Exit codes of a client whose container did not end by itself: as of a shell
// that a signal ended, and of docker run.
const (
	exitStopped = 128 + int(syscall.SIGTERM)
	exitFault   = 125
)

// errStopped is why a client ends that was asked to.
var errStopped = errors.New("asked to end")

// holder is the client of one container: a process of its own.
type holder struct {
	job    Job
	api    *client.Client
	stdout io.Writer
	stderr io.Writer
	report Report
	user   string
	// began: the container may have been created.
	began bool
}

// RunAsClient makes this process the client of a container where its arguments
// say so. It returns the exit code, and whether it was one. It is called at the
// very beginning of every program that runs steps.
func RunAsClient(args []string, stdout, stderr io.Writer) (code int, was bool) {
	const arguments = 3
	if len(args) != arguments || args[1] != ClientName {
		return 0, false
	}
	job, err := takeJob(args[2])
	if err != nil {
		return complain(stderr, fmt.Errorf("reading the job: %w", err)), true
	}
	stop, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		cancel(errStopped)
	}()
	h := &holder{job: job, stdout: stdout, stderr: stderr}
	code = h.hold(stop)
	if err := h.report.write(job.Report); err != nil {
		return complain(stderr, err), true
	}
	return code, true
}

// complain is for the log of the step. Where even that cannot be written the
// exit code is left.
func complain(w io.Writer, err error) int {
	_, _ = fmt.Fprintf(w, "container: %v\n", err)
	return exitFault
}

// hold takes the container through its life, and leaves none. The context ends
// when the container is to.
func (h *holder) hold(stop context.Context) int {
	code, err := h.life(stop)
	if h.began {
		h.remove(context.WithoutCancel(stop))
	}
	switch {
	case err == nil:
		return code
	case context.Cause(stop) != nil:
		return exitStopped
	}
	h.report.Fault, h.report.Message = faultOf(err), err.Error()
	return complain(h.stderr, err)
}

func (h *holder) life(stop context.Context) (int, error) {
	var err error
	if h.api, err = connect(h.job.Engine); err != nil {
		return 0, err
	}
	if err := ping(stop, h.api); err != nil {
		return 0, err
	}
	if h.user, err = h.chooseUser(stop); err != nil {
		return 0, err
	}
	if err := fetch(stop, h.api, h.job.Image, h.job.Login, h.stderr); err != nil {
		return 0, err
	}
	id, out, err := h.start(stop, true)
	if noInit(err) {
		h.report.Notes = append(h.report.Notes,
			"the container engine has no init program: a script without a trap for it does not end at SIGTERM")
		id, out, err = h.start(stop, false)
	}
	if err != nil {
		return 0, err
	}
	defer out.close()
	code, err := h.await(stop, id)
	if err != nil {
		return 0, err
	}
	out.finish()
	return code, h.overLimit(stop, id, code)
}

// chooseUser is who the step is in its container: by default whoever this
// process is, so that the workspace is writable in it, and what it leaves there
// can be removed. To an engine without root that user is root.
func (h *holder) chooseUser(ctx context.Context) (string, error) {
	if h.job.User != "" {
		return h.job.User, nil
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		return "0:0", nil
	}
	rootless, err := isRootless(ctx, h.api)
	if err != nil {
		return "", err
	}
	if rootless {
		return "0:0", nil
	}
	return fmt.Sprintf("%d:%d", uid, gid), nil
}

// start creates and starts the container, in the place of one that an earlier
// client of the same attempt may have left. None of it is cut short: nobody
// would know whether there is a container.
func (h *holder) start(stop context.Context, init bool) (string, *output, error) {
	if err := context.Cause(stop); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), callBound)
	defer cancel()
	h.began = true
	if err := remove(ctx, h.api, h.job.Name); err != nil {
		return "", nil, err
	}
	made, err := h.api.ContainerCreate(ctx, h.job.createOptions(h.user, init))
	if err != nil {
		return "", nil, fmt.Errorf("creating the container: %w", err)
	}
	out, err := attach(ctx, h.api, made.ID, h.stdout, h.stderr)
	if err != nil {
		// Podman prepares the container for that, and says here that it cannot
		// be started, but not why.
		if _, why := h.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); why != nil {
			return "", nil, fmt.Errorf("starting the container: %w", why)
		}
		return "", nil, err
	}
	if _, err := h.api.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		out.close()
		return "", nil, fmt.Errorf("starting the container: %w", err)
	}
	return made.ID, out, nil
}

// overLimit is the error of a container in which something ended because it had too
// little memory. The engine may learn of that after the end: where the exit code
// hints at it, it is given time. Of a container that was to end nobody asks.
func (h *holder) overLimit(ctx context.Context, id string, code int) error {
	if h.job.Limits.Memory == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, oomBound)
	defer cancel()
	for {
		got, err := h.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if err == nil && got.Container.State != nil && got.Container.State.OOMKilled {
			return &memoryError{h.job.Limits.Memory}
		}
		if code != exitKilled || pause.For(ctx, look) != nil {
			return nil // the exit code has to say it
		}
	}
}

// memoryError says that a container was over its limit of memory.
type memoryError struct{ limit int64 }

func (e *memoryError) Error() string {
	return fmt.Sprintf("the container needed more than its %s of memory", proc.Bytes(e.limit))
}

// await waits for the end of the container, which it brings about when stop
// ends.
func (h *holder) await(stop context.Context, id string) (int, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stop))
	defer cancel(nil)
	asked := stop.Done()
	var kill, bound <-chan time.Time
	var away patience
	wait := waitFor(ctx, h.api, id)
	for {
		select {
		case <-wait.Result:
			return h.exitCode(ctx, id)
		case err := <-wait.Error:
			if errdefs.IsNotFound(err) {
				return exitKilled, nil // somebody else removed it
			}
			if err := away.wait(err); err != nil {
				return 0, err
			}
			wait = waitFor(ctx, h.api, id)
		case <-asked:
			asked = nil
			h.signal(ctx, id, "SIGTERM")
			kill = time.After(h.job.Grace)
		case <-kill:
			h.signal(ctx, id, "SIGKILL")
			bound = time.After(Margin / 2)
		case <-bound:
			return 0, errStopped // removing it is all that is left to try
		}
	}
}

// exitCode is that of a container that has ended. The answer of the wait is not
// enough: Podman's says 0 of one that somebody else has removed.
func (h *holder) exitCode(ctx context.Context, id string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	got, err := h.api.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return exitKilled, nil
	case err != nil:
		return 0, fmt.Errorf("asking how the container ended: %w", err)
	case got.Container.State == nil || got.Container.State.Status == container.StateRemoving:
		return exitKilled, nil
	}
	return got.Container.State.ExitCode, nil
}

func waitFor(ctx context.Context, api *client.Client, id string) client.ContainerWaitResult {
	return api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
}

// oomBound is how long one waits to hear that a container which was killed was
// so for its memory.
const oomBound = 5 * time.Second

// exitKilled is the exit code of what SIGKILL ended.
const exitKilled = 128 + int(syscall.SIGKILL)

// signal sends a signal to the container. One that is gone, or ends just now,
// needs none; an engine that is away shows in the wait.
func (h *holder) signal(ctx context.Context, id, name string) {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	_, err := h.api.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: name})
	if err != nil && !gone(err) {
		complain(h.stderr, fmt.Errorf("sending %s: %w", name, err))
	}
}

// remove removes the container. What cannot be removed now is left to the
// worker, which looks for it by its name.
func (h *holder) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Margin/2)
	defer cancel()
	if err := remove(ctx, h.api, h.job.Name); err != nil {
		complain(h.stderr, err)
	}
}
