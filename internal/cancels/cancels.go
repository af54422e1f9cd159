// Package cancels tells all hosts at once, through Redis, that a run is
// cancelled. It makes a cancel of many processes fast and nothing else: each
// stage has its host end what it runs in any case, so nothing depends on what is
// not heard, or not said while Redis is away.
package cancels

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"belay.run/internal/run"
)

const (
	channel = "belay:cancels"
	answers = "belay:cancels:"
	// Within bounds an announcement and its answers: what is not gone by then
	// takes its time to end, and who waits longer would gain nothing.
	Within = 500 * time.Millisecond
)

// Cancel is the cancel of a run, by its run key.
type Cancel struct {
	RunKey string    `json:"run_key"`
	Cause  run.Cause `json:"cause"`
	// Answer is where a host says that what it ran of the run is gone.
	Answer string `json:"answer,omitempty"`
}

// Cancels announces cancels and hears of them. It is safe for concurrent use; a
// nil one says and hears nothing.
type Cancels struct {
	rdb redis.UniversalClient
}

// New returns the cancels of a Redis, nil where there is none.
func New(rdb redis.UniversalClient) *Cancels {
	if rdb == nil {
		return nil
	}
	return &Cancels{rdb: rdb}
}

// Announce tells the hosts that listen of a cancel, and waits until all of them
// have answered that what they ran of the run is gone, or [Within] is over. That
// some did not answer is no error: they may run what takes its time to end.
func (c *Cancels) Announce(ctx context.Context, cancel Cancel) error {
	if c == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, Within)
	defer stop()
	cancel.Answer = answers + uuid.NewString()
	sub := c.rdb.Subscribe(ctx, cancel.Answer)
	defer func() { _ = sub.Close() }() // nothing can be lost by it
	if _, err := sub.Receive(ctx); err != nil {
		return fmt.Errorf("announcing a cancel: listening for answers: %w", err)
	}
	text, err := json.Marshal(cancel)
	if err != nil {
		return fmt.Errorf("announcing a cancel: %w", err)
	}
	hosts, err := c.rdb.Publish(ctx, channel, text).Result()
	if err != nil {
		return fmt.Errorf("announcing a cancel: %w", err)
	}
	for range hosts {
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			break
		}
	}
	return nil
}

// Listen hands on the cancels that it hears of until ctx ends, each in a goroutine
// of its own, and answers when that returns. It goes on by itself when Redis comes
// back.
func (c *Cancels) Listen(ctx context.Context, heard func(Cancel)) {
	if c == nil {
		return
	}
	sub := c.rdb.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }() // nothing can be lost by it
	var hearing sync.WaitGroup
	defer hearing.Wait()
	for messages := sub.Channel(); ; {
		select {
		case <-ctx.Done():
			return
		case msg, open := <-messages:
			if !open {
				return
			}
			var cancel Cancel
			// What is not one was not said by a worker of ours.
			if json.Unmarshal([]byte(msg.Payload), &cancel) == nil && cancel.RunKey != "" {
				hearing.Go(func() { heard(cancel); c.answer(ctx, cancel) })
			}
		}
	}
}

// answer says that what this host ran of a run is gone.
func (c *Cancels) answer(ctx context.Context, cancel Cancel) {
	if cancel.Answer == "" {
		return // a worker of an earlier release waits for none
	}
	ctx, stop := context.WithTimeout(ctx, Within)
	defer stop()
	// Who does not hear it waits until its time is over.
	_ = c.rdb.Publish(ctx, cancel.Answer, "").Err()
}
