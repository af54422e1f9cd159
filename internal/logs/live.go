package logs

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// tailChunks is how many chunks of a log Redis holds.
	tailChunks = 64
	// tailRunning and tailEnded are how long it holds them after the last one
	// came, and after the log has ended.
	tailRunning = 25 * time.Hour
	tailEnded   = time.Hour
	// newsLength is about how many beginnings of logs a run announces.
	newsLength = 1000
	// redisPatience bounds one conversation with Redis.
	redisPatience = 5 * time.Second
)

// live shows the tail of one part of a log in Redis. It never makes its callers
// wait: where Redis is slow, older chunks are skipped, and where it is away, all.
type live struct {
	logs   *Logs
	runKey string
	part   part

	mu        sync.Mutex
	queue     []chunk
	ended     bool
	announced bool
	talking   bool
}

// chunk is a piece of a log: whole frames, and where they stand in the part.
type chunk struct {
	off    int64
	frames []byte
}

func newLive(l *Logs, runKey string, p part) *live {
	return &live{logs: l, runKey: runKey, part: p}
}

// offer shows frames that are in the store, at off. It keeps a copy.
func (v *live) offer(ctx context.Context, off int64, frames []byte) {
	if !v.logs.reachable() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = append(v.queue, chunks(off, frames)...)
	if n := len(v.queue) - tailChunks; n > 0 {
		v.queue = append(v.queue[:0], v.queue[n:]...)
	}
	v.talk(ctx)
}

// end lets the tail expire.
func (v *live) end(ctx context.Context) {
	if !v.logs.reachable() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	v.talk(ctx)
}

// talk sends what is queued, unless that is going on already.
func (v *live) talk(ctx context.Context) {
	if v.talking {
		return
	}
	v.talking = true
	// Not ended by the step's context: the end of a log is to be seen too.
	ctx = context.WithoutCancel(ctx)
	v.logs.talks.Go(func() { v.send(ctx) })
}

func (v *live) send(ctx context.Context) {
	for {
		v.mu.Lock()
		queue, ended, news := v.queue, v.ended, !v.announced
		if len(queue) == 0 && !ended {
			v.talking = false
			v.mu.Unlock()
			return
		}
		v.queue, v.ended, v.announced = nil, false, true
		v.mu.Unlock()
		if v.logs.reachable() && v.pipe(ctx, queue, news, ended) != nil {
			v.logs.failed()
		}
	}
}

func (v *live) pipe(ctx context.Context, queue []chunk, news, ended bool) error {
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	age := tailRunning
	if ended {
		age = tailEnded
	}
	_, err := v.logs.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range queue {
			p.XAdd(ctx, &redis.XAddArgs{
				Stream: tailKey(v.runKey, v.part), MaxLen: tailChunks, Values: []any{"o", c.off, "d", c.frames},
			})
		}
		p.Expire(ctx, tailKey(v.runKey, v.part), age)
		if news {
			p.XAdd(ctx, &redis.XAddArgs{
				Stream: newsKey(v.runKey), MaxLen: newsLength, Approx: true, Values: []any{"n", v.part.name()},
			})
		}
		p.Expire(ctx, newsKey(v.runKey), age)
		return nil
	})
	return err
}

// chunks cuts a copy of frames into pieces of at most chunkSize.
func chunks(off int64, frames []byte) []chunk {
	frames = append([]byte(nil), frames...)
	var out []chunk
	for len(frames) > 0 {
		n := 0
		for n < len(frames) {
			size := frameSize(frames[n:])
			if n > 0 && n+size > chunkSize {
				break
			}
			n += size
		}
		out = append(out, chunk{off: off, frames: frames[:n]})
		off += int64(n)
		frames = frames[n:]
	}
	return out
}
