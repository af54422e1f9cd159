package dedup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// channel is where releases and reruns are announced, by the JSON of their key.
// The channel of a tier's echo has the same hash tag: on one server, what is
// published later is heard later.
const channel = "belay:{claims}"

const (
	// echoEvery is how often a tier proves to itself that it hears.
	echoEvery = time.Second
	// heardBy is after what time each tier has heard an announcement or does
	// not answer any more: trustFor, and what a busy process may add.
	heardBy = 3 * time.Second
	// resubscribeAfter is how long a tier waits before it tries to hear again.
	resubscribeAfter = 200 * time.Millisecond
)

// errDeaf is why a subscription is given up: it is open, but says nothing.
var errDeaf = errors.New("no echo")

// listen keeps the tier in step with what is announced, until ctx ends.
func (c *Claims) listen(ctx context.Context) {
	for ctx.Err() == nil {
		err := c.hear(ctx)
		c.tier.off()
		if ctx.Err() != nil {
			return
		}
		c.log.Warn("The local tier of claims is off until Redis can be heard again", zap.Error(err))
		select {
		case <-ctx.Done():
		case <-time.After(resubscribeAfter):
		}
	}
}

// hear follows one subscription until it fails. The client would subscribe again
// by itself, and hide that something may have been missed; so an error ends it.
func (c *Claims) hear(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	echo := channel + ":" + rand.Text() // new each time: an old echo proves nothing
	sub := c.rdb.Subscribe(ctx, channel, echo)
	// Closed early too, since what waits for a message does not see ctx end.
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	defer func() { _ = sub.Close() }() // nothing can be lost by it
	done := make(chan struct{})
	defer func() { <-done }()
	defer cancel(nil)
	subscribed := make(chan struct{})
	go func() {
		defer close(done)
		c.echo(ctx, echo, subscribed)
	}()
	for confirmed := 0; ; {
		msg, err := sub.ReceiveTimeout(ctx, trustFor)
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *redis.Subscription:
			if confirmed++; confirmed == 2 {
				close(subscribed)
			}
		case *redis.Message:
			if err := c.heard(msg, echo); err != nil {
				return err
			}
		}
	}
}

// heard takes one message.
func (c *Claims) heard(msg *redis.Message, echo string) error {
	if msg.Channel == echo {
		steady, wall, _ := strings.Cut(msg.Payload, " ")
		s, err1 := strconv.ParseInt(steady, 10, 64)
		w, err2 := strconv.ParseInt(wall, 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("reading an echo: %w", err)
		}
		c.tier.proved(s, w)
		if now, _ := c.tier.clock(); now >= s+int64(trustFor) {
			return errDeaf // announcements would come as late
		}
		return nil
	}
	var key Key
	if err := json.Unmarshal([]byte(msg.Payload), &key); err != nil {
		return fmt.Errorf("reading an announcement: %w", err)
	}
	c.tier.forget(key)
	return nil
}

// echo sends the tier's own clock to itself, once its subscription stands.
func (c *Claims) echo(ctx context.Context, to string, subscribed <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-subscribed:
	}
	tick := time.NewTicker(echoEvery)
	defer tick.Stop()
	for {
		steady, wall := c.tier.clock()
		// One that is lost is noticed by whoever does not hear it.
		_ = c.publish(ctx, to, fmt.Sprintf("%d %d", steady, wall))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// publish sends a message through the server at which tiers subscribe.
func (c *Claims) publish(ctx context.Context, to, text string) error {
	ctx, cancel := context.WithTimeout(ctx, echoEvery)
	defer cancel()
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, to)
		if err != nil {
			return err
		}
		return node.Publish(ctx, to, text).Err()
	}
	return c.rdb.Publish(ctx, to, text).Err()
}

// announced returns when no tier can answer any more from before a change of a
// key. The change itself, which was made age ago, told them.
func (c *Claims) announced(ctx context.Context, key Key, age time.Duration) error {
	if _, ok := c.rdb.(*redis.ClusterClient); ok {
		// The script told them through the server of the key, and servers may
		// be late in telling each other.
		text, err := json.Marshal(key)
		if err != nil {
			return err
		}
		if err := c.publish(ctx, channel, string(text)); err != nil {
			return err
		}
		age = 0
	}
	timer := time.NewTimer(c.heardBy - age)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
