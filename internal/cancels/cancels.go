// Package cancels tells all hosts at once, through Redis, that a run is
// cancelled. It makes a cancel of many processes fast and nothing else: each
// stage has its host end what it runs in any case, so nothing depends on what is
// not heard, or not said while Redis is away.
package cancels

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/run"
)

const (
	channel = "belay:cancels"
	// sayFor bounds an announcement: who waits longer would gain nothing.
	sayFor = 500 * time.Millisecond
)

// Cancel is the cancel of a run, by its run key.
type Cancel struct {
	RunKey string    `json:"run_key"`
	Cause  run.Cause `json:"cause"`
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

// Announce tells the hosts that listen of a cancel.
func (c *Cancels) Announce(ctx context.Context, cancel Cancel) error {
	if c == nil {
		return nil
	}
	text, err := json.Marshal(cancel)
	if err != nil {
		return fmt.Errorf("announcing a cancel: %w", err)
	}
	ctx, stop := context.WithTimeout(ctx, sayFor)
	defer stop()
	if err := c.rdb.Publish(ctx, channel, text).Err(); err != nil {
		return fmt.Errorf("announcing a cancel: %w", err)
	}
	return nil
}

// Listen hands on the cancels that it hears of until ctx ends. It goes on by
// itself when Redis comes back.
func (c *Cancels) Listen(ctx context.Context, heard func(Cancel)) {
	if c == nil {
		return
	}
	sub := c.rdb.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }() // nothing can be lost by it
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
				heard(cancel)
			}
		}
	}
}
