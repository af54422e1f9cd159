package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
)

// draft is an object that Put is writing: chunks of a generation of its own
// that nothing refers to yet.
type draft struct {
	rdb    redis.UniversalClient
	key    string
	gen    string
	chunks int
	size   int64
}

func (d *draft) write(ctx context.Context, r io.Reader) (Info, error) {
	buf := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := d.rdb.Set(ctx, chunkKey(d.key, d.gen, d.chunks), buf[:n], draftAge).Err(); err != nil {
				return Info{}, err
			}
			d.chunks++
			d.size += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return d.publish(ctx)
		case err != nil:
			return Info{}, err
		}
	}
}

func (d *draft) publish(ctx context.Context) (Info, error) {
	if err := d.rdb.ZAdd(ctx, indexKey, redis.Z{Member: d.key}).Err(); err != nil {
		return Info{}, err
	}
	now := time.Now()
	err := publishScript.Run(ctx, d.rdb, []string{metaKey(d.key)}, chunkPrefix(d.key), d.gen, d.chunks, d.size,
		now.UnixMilli(), int(formerAge.Seconds())).Err()
	return Info{Key: d.key, Size: d.size, Modified: now}, err
}

// discard removes the chunks of a draft that failed. What it cannot remove
// expires.
func (d *draft) discard(ctx context.Context) {
	// The caller's context may be what ended the draft.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for n := 0; n < d.chunks; n += page {
		keys := make([]string, 0, page)
		for i := n; i < min(n+page, d.chunks); i++ {
			keys = append(keys, chunkKey(d.key, d.gen, i))
		}
		if d.rdb.Del(ctx, keys...).Err() != nil {
			return
		}
	}
}
