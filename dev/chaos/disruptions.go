package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"belay.run/internal/dedup"
)

// withVictim plays a round with a worker to which something happens.
func withVictim(ctx context.Context, d *drill, name string, play func(s *story, victim *worker, r request, a answer) error) error {
	s := d.ofStep(name)
	victim, err := startWorker(ctx, d.opts, skew(int(d.serial.Add(1))))
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = victim.stop() // an error is on its way already
		}
	}()
	r, err := s.request(ctx)
	if err != nil {
		return err
	}
	a, err := s.expect(ctx, victim, r, true, "the first")
	if err != nil || !a.runs() {
		return err
	}
	if err := play(s, victim, r, a); err != nil {
		return err
	}
	stopped = true
	return victim.stop()
}

// killedRound: Temporal gives the step to another worker, others stay blocked.
func killedRound(ctx context.Context, d *drill) error {
	return withVictim(ctx, d, "killed", func(s *story, victim *worker, r request, _ answer) error {
		if err := victim.signal(syscall.SIGKILL); err != nil {
			return err
		}
		if err := s.duplicates(ctx, r, "the owner's worker was killed, its run is open"); err != nil {
			return err
		}
		a, err := s.expect(ctx, d.worker(), r, true, "the next attempt, elsewhere")
		if err != nil || !a.runs() {
			return err
		}
		if err := s.end(ctx, d.worker(), a, dedup.Completed); err != nil {
			return err
		}
		return s.duplicates(ctx, r, "completed by the second attempt")
	})
}

// lostRound: the run was terminated with its worker, so the key is free.
func lostRound(ctx context.Context, d *drill) error {
	return withVictim(ctx, d, "lost", func(s *story, victim *worker, r request, _ answer) error {
		if err := victim.signal(syscall.SIGKILL); err != nil {
			return err
		}
		d.close(r.runKey)
		return s.takeOver(ctx, "after the owner's run was closed")
	})
}

// takeOver lets a burst take the claim of a dead owner over, of which one may.
func (s *story) takeOver(ctx context.Context, what string) error {
	began, a, err := s.burst(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := s.duplicates(ctx, began, what); err != nil {
		return err
	}
	return s.end(ctx, s.d.worker(), a, dedup.Completed)
}

// stoppedRound: the owner sleeps over its end, and must not write when it wakes.
func stoppedRound(ctx context.Context, d *drill) error {
	return withVictim(ctx, d, "stopped", func(s *story, victim *worker, r request, old answer) error {
		if err := victim.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		if err := d.expired(ctx, s, r); err != nil {
			return err
		}
		d.close(r.runKey)
		if err := s.takeOver(ctx, "after the stopped owner's run was closed"); err != nil {
			return err
		}
		if err := victim.signal(syscall.SIGCONT); err != nil {
			return err
		}
		late, err := victim.ask(ctx, order{Settle: settlement(old, dedup.Completed)})
		if err != nil {
			return err
		}
		d.countWrite(late.NotOwner, "woken up after a takeover")
		return nil
	})
}

// expired waits until the lease of the owner is over, while others go on asking.
func (d *drill) expired(ctx context.Context, s *story, owner request) error {
	end := time.Now().Add(lease)
	for time.Now().Before(end) {
		if err := s.duplicates(ctx, owner, "the owner is stopped, its run is open"); err != nil {
			return err
		}
	}
	return nil
}

// cutRound: the owner cannot reach Redis for a while, and others can.
func cutRound(ctx context.Context, d *drill) error {
	return withVictim(ctx, d, "cut off", func(s *story, victim *worker, r request, a answer) error {
		if err := victim.link.Cut(); err != nil {
			return err
		}
		other, err := s.request(ctx)
		if err != nil {
			return err
		}
		var beyond error
		var asking sync.WaitGroup
		asking.Go(func() { _, beyond = s.expect(ctx, victim, other, false, "asked where Redis is away") })
		err = s.duplicates(ctx, r, "the owner is cut off")
		asking.Wait()
		if err := errors.Join(err, beyond); err != nil {
			return err
		}
		if err := victim.link.Heal(ctx); err != nil {
			return err
		}
		if err := s.end(ctx, victim, a, dedup.Completed); err != nil {
			return err
		}
		return s.duplicates(ctx, r, "completed after the cut")
	})
}
