package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/dedup"
)

// Command makes the command of a worker: a program that calls [Worker] with the
// arguments that it is given in args.
type Command func(ctx context.Context, args WorkerArgs) (*exec.Cmd, error)

// WorkerArgs is what a worker is told at its start.
type WorkerArgs struct {
	RedisAddr string        `json:"redis_addr"`
	Skew      time.Duration `json:"skew"`
	Published bool          `json:"published,omitempty"`
}

// order is what a worker is asked to do, as a line of JSON.
type order struct {
	Serial int `json:"serial"`
	// Race has many goroutines claim the same keys.
	Race *raceOrder `json:"race,omitempty"`
	// One of them is set. Now asks for Redis's time.
	Claim  *dedup.Claim      `json:"claim,omitempty"`
	Settle *dedup.Settlement `json:"settle,omitempty"`
	Now    bool              `json:"now,omitempty"`
}

// answer is what came of an order.
type answer struct {
	Serial   int            `json:"serial"`
	Decision dedup.Decision `json:"decision,omitempty"`
	Record   dedup.Record   `json:"record,omitzero"`
	At       time.Time      `json:"at,omitzero"`
	// Away: Redis could not be reached. NotOwner: the claim is another's.
	Away     bool   `json:"away,omitempty"`
	NotOwner bool   `json:"not_owner,omitempty"`
	Fault    string `json:"fault,omitempty"`
	// Executions counts, for each key of a race, who might run.
	Executions []int `json:"executions,omitempty"`

	refused bool // Redis was away, or the worker was gone
}

func (a answer) runs() bool { return a.Decision.Runs() }

// Worker is the life of a worker process: it takes orders from in and answers on
// out until in ends, many at once.
func Worker(ctx context.Context, args WorkerArgs, in io.Reader, out io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: args.RedisAddr})
	defer rdb.Close() //nolint:errcheck // the process ends
	claims, err := dedup.Open(rdb, dedup.Options{
		Tier: true, Clock: func() time.Time { return time.Now().Add(args.Skew) },
	})
	if err != nil {
		return err
	}
	defer claims.Close()
	var decide decider = claims
	if args.Published {
		decide = NewPublished(rdb)
	}
	var mu sync.Mutex
	answers := json.NewEncoder(out)
	var orders sync.WaitGroup
	defer orders.Wait()
	lines := json.NewDecoder(in)
	for {
		var o order
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an order: %w", err)
		}
		orders.Go(func() {
			a := obey(ctx, decide, claims, o)
			mu.Lock()
			defer mu.Unlock()
			_ = answers.Encode(a) // who asked is gone
		})
	}
}

// decider is what says whether a request runs.
type decider interface {
	Claim(ctx context.Context, claim dedup.Claim) (dedup.Verdict, error)
	Settle(ctx context.Context, s dedup.Settlement) error
}

func obey(ctx context.Context, decide decider, clock *dedup.Claims, o order) answer {
	a := answer{Serial: o.Serial}
	var err error
	switch {
	case o.Claim != nil:
		var v dedup.Verdict
		v, err = decide.Claim(ctx, *o.Claim)
		a.Decision, a.Record = v.Decision, v.Record
	case o.Race != nil:
		a.Executions, err = race(ctx, decide, *o.Race)
	case o.Settle != nil:
		err = decide.Settle(ctx, *o.Settle)
	default:
		a.At, err = clock.Now(ctx)
	}
	switch {
	case errors.Is(err, dedup.ErrUnavailable):
		a.Away = true
	case errors.Is(err, dedup.ErrNotOwner):
		a.NotOwner = true
	case err != nil:
		a.Fault = err.Error()
	}
	return a
}

// worker is a worker process as the drill holds it.
type worker struct {
	cmd   *exec.Cmd
	link  *Proxy
	in    io.WriteCloser
	ended chan struct{}

	mu      sync.Mutex
	serial  int
	waiting map[int]chan answer
}

// startWorker starts one on a link of its own.
func startWorker(ctx context.Context, opts Options, skew time.Duration) (*worker, error) {
	link, err := NewProxy(opts.RedisAddr)
	if err != nil {
		return nil, err
	}
	w := &worker{link: link, ended: make(chan struct{}), waiting: map[int]chan answer{}}
	if w.cmd, err = opts.Command(ctx, WorkerArgs{RedisAddr: link.Addr(), Skew: skew, Published: opts.Published}); err == nil {
		err = w.start()
	}
	if err != nil {
		link.Close()
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	return w, nil
}

func (w *worker) start() error {
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go w.listen(out)
	return nil
}

// listen hands answers to those who wait for them until the process has ended.
func (w *worker) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	const longest = 1 << 20
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			a.Fault = fmt.Sprintf("a worker said %q: %v", lines.Text(), err)
		}
		w.mu.Lock()
		if c := w.waiting[a.Serial]; c != nil {
			delete(w.waiting, a.Serial)
			c <- a
		}
		w.mu.Unlock()
	}
	close(w.ended)
}

// ask gives an order and returns its answer; one that died answers refused.
func (w *worker) ask(ctx context.Context, o order) (answer, error) {
	c := make(chan answer, 1)
	w.mu.Lock()
	w.serial++
	o.Serial = w.serial
	w.waiting[o.Serial] = c
	line, err := json.Marshal(o)
	if err == nil {
		_, err = w.in.Write(append(line, '\n'))
	}
	w.mu.Unlock()
	if err != nil {
		return answer{refused: true}, nil //nolint:nilerr // it was killed
	}
	select {
	case a := <-c:
		a.refused = a.Away
		if a.Fault != "" {
			return a, errors.New(a.Fault)
		}
		return a, nil
	case <-w.ended:
		return answer{refused: true}, nil
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// signal sends the process a signal.
func (w *worker) signal(s syscall.Signal) error { return w.cmd.Process.Signal(s) }

// stop ends the process and its link.
func (w *worker) stop() error {
	defer w.link.Close()
	err := w.in.Close()
	_ = w.signal(syscall.SIGCONT) // it may have ended
	const patience = 10 * time.Second
	last := time.AfterFunc(patience, func() { _ = w.cmd.Process.Kill() })
	defer last.Stop()
	<-w.ended
	var exit *exec.ExitError
	if waitErr := w.cmd.Wait(); !errors.As(waitErr, &exit) {
		err = errors.Join(err, waitErr)
	}
	return err
}
