package logs

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// listenFor is how long one command waits in Redis.
	listenFor = time.Second
	// maxStreams is how many logs are listened to at once, and maxHeard how
	// many chunks of all of them one answer may hold.
	maxStreams = 500
	maxHeard   = 1000
)

// listener hears from Redis what is written to the logs of a run. It never
// makes its owner wait; what it misses, the store has.
type listener struct {
	logs   *Logs
	runKey string
	// last is the newest entry known of each stream that is listened to, or ""
	// where that is still to be asked.
	last map[string]string
	// pending is where the answer to a question under way will come, or nil.
	pending chan news
	ok      bool
}

// news is the answer to one question.
type news struct {
	begun  []string
	chunks map[string][]chunk // by the name of the part
	last   map[string]string
	// located says that the question was only where streams end.
	located bool
	err     error
}

func newListener(l *Logs, runKey string) *listener {
	return &listener{logs: l, runKey: runKey, last: map[string]string{newsKey(runKey): ""}}
}

// hears reports whether Redis answered when it was last asked.
func (v *listener) hears() bool { return v.ok && v.logs.reachable() }

// listen yields what is new in the logs that have not ended, once: after each
// answer, which goes to heard, it is called again.
func (v *listener) listen(ctx context.Context, cursors map[string]*cursor) <-chan news {
	if v.pending != nil || !v.logs.reachable() {
		return v.pending
	}
	v.choose(cursors)
	var unknown, keys, ids []string
	for key, id := range v.last {
		if id == "" {
			unknown = append(unknown, key)
		}
		keys, ids = append(keys, key), append(ids, id)
	}
	pending := make(chan news, 1)
	v.pending = pending
	v.logs.talks.Go(func() {
		if len(unknown) > 0 {
			pending <- v.locate(ctx, unknown)
		} else {
			pending <- v.ask(ctx, append(keys, ids...))
		}
	})
	return pending
}

// choose settles what is listened to.
func (v *listener) choose(cursors map[string]*cursor) {
	for key := range v.last {
		name, isTail := strings.CutPrefix(key, tailPrefix(v.runKey))
		if c := cursors[name]; isTail && (c == nil || c.ended) {
			delete(v.last, key)
		}
	}
	for _, c := range cursors {
		key := tailKey(v.runKey, c.part)
		if _, known := v.last[key]; !known && !c.ended && len(v.last) < maxStreams {
			v.last[key] = ""
		}
	}
}

// locate finds where streams end now.
func (v *listener) locate(ctx context.Context, keys []string) news {
	cmds := make([]*redis.XMessageSliceCmd, len(keys))
	_, err := v.logs.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			cmds[i] = p.XRevRangeN(ctx, key, "+", "-", 1)
		}
		return nil
	})
	n := news{located: true, err: err, last: map[string]string{}}
	for i, key := range keys {
		n.last[key] = "0-0"
		if found := cmds[i].Val(); len(found) > 0 {
			n.last[key] = found[0].ID
		}
	}
	return n
}

// ask waits for entries after those that are known.
func (v *listener) ask(ctx context.Context, streams []string) news {
	found, err := v.logs.rdb.XRead(ctx, &redis.XReadArgs{
		Streams: streams, Count: max(1, int64(maxHeard/len(streams))), Block: listenFor,
	}).Result()
	if errors.Is(err, redis.Nil) {
		err = nil // nothing new
	}
	n := news{err: err, chunks: map[string][]chunk{}, last: map[string]string{}}
	for _, s := range found {
		name, isTail := strings.CutPrefix(s.Stream, tailPrefix(v.runKey))
		for _, m := range s.Messages {
			n.last[s.Stream] = m.ID
			if isTail {
				n.chunks[name] = append(n.chunks[name], chunkOf(m))
			} else {
				begun, _ := m.Values["n"].(string) // anything else names no part
				n.begun = append(n.begun, begun)
			}
		}
	}
	return n
}

// chunkOf reads an entry of a tail. One that is not well-formed has no frames.
func chunkOf(m redis.XMessage) chunk {
	off, _ := m.Values["o"].(string)
	frames, _ := m.Values["d"].(string)
	at, err := strconv.ParseInt(off, 10, 64)
	if err != nil {
		return chunk{}
	}
	return chunk{off: at, frames: []byte(frames)}
}

// heard notes how far an answer goes.
func (v *listener) heard(n news) {
	v.pending = nil
	v.ok = n.err == nil
	if n.err != nil {
		v.logs.failed()
		return
	}
	maps.Copy(v.last, n.last)
}
