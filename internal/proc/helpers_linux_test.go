package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"belay.run/internal/proc/supervisor/tree"
)

// helpers are the programs that the test binary can be.
var helpers = map[string]func() int{
	"worker":   helperWorker,
	"allocate": helperAllocate,
	"pid1":     helperPID1,
	"hardened": helperHardened,
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// helperWorker runs one step and says its pid, its supervisor's, and its output.
func helperWorker() int {
	h, err := New(Options{StateDir: os.Getenv("WORKER_STATE"), NoCgroup: os.Getenv("WORKER_NO_CGROUP") == "true"})
	if err != nil {
		return complain(err)
	}
	h.killBound = time.Second
	out := &held{ready: make(chan struct{})}
	p, err := h.Start(context.Background(), Job{
		Node: os.Getenv("WORKER_NODE"), Argv: []string{"/bin/sh", "-c", os.Getenv("WORKER_SCRIPT")},
		Dir: os.Getenv("WORKER_DIR"), Env: []string{"PATH=" + os.Getenv("PATH")}, Stdout: out, Stderr: out,
		Grace: 3 * time.Second,
	})
	if err != nil {
		return complain(err)
	}
	_, _ = fmt.Fprintf(os.Stdout, "%d\n%d\n", p.PID(), p.keeper.cmd.Process.Pid)
	close(out.ready)
	r, err := p.Wait()
	if err != nil {
		return complain(err)
	}
	if !r.Gone {
		_, _ = fmt.Fprintln(os.Stdout, "not gone:", r.GoneNote)
	}
	return r.ExitCode
}

// held passes output on once the pids have been said.
type held struct{ ready chan struct{} }

func (h *held) Write(p []byte) (int, error) {
	<-h.ready
	return os.Stdout.Write(p)
}

// helperAllocate holds 128 MiB for a moment.
func helperAllocate() int {
	memory := make([]byte, 128<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	return int(memory[len(memory)/2]) - 1
}

// helperPID1 is the main function of a worker in a container.
func helperPID1() int {
	if code, handled := RunAsPID1(); handled {
		return code
	}
	stop := make(chan os.Signal, 8)
	signal.Notify(stop, syscall.SIGTERM)
	// Orphans that end at once, of a program that is no step.
	for range 50 {
		if err := exec.Command("/bin/sh", "-c", "(setsid true &)").Run(); err != nil {
			return complain(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); zombies() > 0; {
		if time.Now().After(deadline) {
			return complain(fmt.Errorf("%d zombies", zombies()))
		}
		time.Sleep(time.Millisecond)
	}
	_, _ = fmt.Fprintln(os.Stdout, "pid", os.Getpid(), "parent", os.Getppid())
	if os.Getenv("WORKER_SCRIPT") != "" {
		return helperWorker()
	}
	if os.Getenv("PID1_WAIT") != "" {
		<-stop
		if len(stop) > 0 {
			return complain(fmt.Errorf("%d signals more than were sent", len(stop)))
		}
		return 43
	}
	return 42
}

func zombies() int {
	n := 0
	for _, pid := range tree.Processes() {
		if s, err := tree.ReadStat(pid); err == nil && s.Dead() {
			n++
		}
	}
	return n
}

// helperHardened runs a step that tries to look into the worker and into its
// supervisor.
func helperHardened() int {
	if os.Getenv("HARDEN") == "true" {
		if err := Harden(); err != nil {
			return complain(err)
		}
	}
	h, err := New(Options{StateDir: os.Getenv("WORKER_STATE"), NoCgroup: true})
	if err != nil {
		return complain(err)
	}
	look := `for pid in $WORKER $PPID; do
		grep -a -o worker-secret=. /proc/$pid/environ /proc/$pid/cmdline
		readlink /proc/$pid/fd/3 >/dev/null && echo a descriptor
		(: </proc/$pid/mem) && echo memory
	done 2>/dev/null; echo looked`
	p, err := h.Start(context.Background(), Job{
		Node: "run/build/spy", Argv: []string{"/bin/sh", "-c", look}, Dir: "/",
		Env:    []string{"PATH=" + os.Getenv("PATH"), fmt.Sprintf("WORKER=%d", os.Getpid())},
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return complain(err)
	}
	r, err := p.Wait()
	if err != nil {
		return complain(err)
	}
	if !r.Gone || strings.Contains(r.GoneNote, "could not") {
		return complain(fmt.Errorf("%+v", r))
	}
	return r.ExitCode
}
