package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// sleepers are processes "sleep DURATION", held so that their end is seen when
// it comes, whoever ends them.
type sleepers struct{ fds []unix.PollFd }

// findSleepers waits until so many processes sleep for just this duration.
func findSleepers(ctx context.Context, duration string, count int) (*sleepers, error) {
	const every = 300 * time.Millisecond // a look at all of /proc costs the machine that is measured
	for {
		pids := sleeping(duration)
		if len(pids) >= count {
			return hold(pids)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %d processes, of which %d came: %w", count, len(pids), context.Cause(ctx))
		case <-time.After(every):
		}
	}
}

func sleeping(duration string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // fails on bad patterns only
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || string(line) != "sleep\x00"+duration+"\x00" {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hold(pids []int) (*sleepers, error) {
	s := &sleepers{}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("taking hold of a process: %w", err)
		}
		s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return s, nil
}

// wait returns when the last of them has ended.
func (s *sleepers) wait(ctx context.Context) error {
	const lookMs = 100
	for len(s.fds) > 0 {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("waiting for the end of %d processes: %w", len(s.fds), err)
		}
		if _, err := unix.Poll(s.fds, lookMs); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for the end of processes: %w", err)
		}
		left := s.fds[:0]
		for _, fd := range s.fds {
			if fd.Revents == 0 {
				left = append(left, fd)
			} else {
				_ = unix.Close(int(fd.Fd)) // a pidfd has nothing to flush
			}
		}
		s.fds = left
	}
	return nil
}

func (s *sleepers) close() {
	for _, fd := range s.fds {
		_ = unix.Close(int(fd.Fd)) // a pidfd has nothing to flush
	}
	s.fds = nil
}
