package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// chunkSize bounds what one Redis value and one read or write of it holds.
	chunkSize = 256 << 10
	// draftAge is how long the chunks of a Put that was never completed stay,
	// counted from the last of them.
	draftAge = time.Hour
	// formerAge is how long the chunks of a replaced object stay for those who
	// are reading it.
	formerAge = time.Minute
	// page is how many objects are listed or deleted in one round trip.
	page = 256
)

// redisStore keeps each object in chunks, as redis_keys.go describes.
type redisStore struct {
	rdb redis.UniversalClient
}

// fault says what was being done where, and marks a full Redis as such.
func (s *redisStore) fault(doing, key string, err error) error {
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "OOM ") {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("store redis: %s %q: %w", doing, key, err)
}

func (s *redisStore) Put(ctx context.Context, key string, r io.Reader, limit int64) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	draft := draft{rdb: s.rdb, key: key, gen: rand.Text()}
	info, err := draft.write(ctx, &limited{ctx: ctx, r: r, limit: limit})
	if err != nil {
		draft.discard(ctx)
		return Info{}, s.fault("writing", key, err)
	}
	return info, nil
}

func (s *redisStore) Append(ctx context.Context, key string, off int64, p []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if off == 0 {
		if err := s.rdb.ZAdd(ctx, indexKey, redis.Z{Member: key}).Err(); err != nil {
			return s.fault("appending to", key, err)
		}
	}
	// The client repeats a command whose answer was lost; the id of the append
	// lets the script see that it has been here before.
	size, err := appendScript.Run(ctx, s.rdb, []string{metaKey(key)}, chunkPrefix(key), chunkSize, off, p,
		time.Now().UnixMilli(), rand.Text()).Int64()
	if err == nil && size >= 0 {
		err = fmt.Errorf("%w: %d bytes long instead of %d", ErrConflict, size, off)
	}
	return s.fault("appending to", key, err)
}

func (s *redisStore) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	for n := 0; ; {
		want := min(len(p)-n, chunkSize)
		got, err := readScript.Run(ctx, s.rdb, []string{metaKey(key)}, chunkPrefix(key), chunkSize, off+int64(n), want).Text()
		if errors.Is(err, redis.Nil) {
			err = ErrNotFound
		}
		if err != nil {
			return n, s.fault("reading", key, err)
		}
		n += copy(p[n:], got)
		switch {
		case n == len(p):
			return n, nil
		case len(got) < want:
			return n, io.EOF
		}
	}
}

func (s *redisStore) Stat(ctx context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	m, err := readMeta(key, s.rdb.HMGet(ctx, metaKey(key), metaFields...))
	return m.Info, s.fault("looking at", key, err)
}

func (s *redisStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	m, err := readMeta(key, s.rdb.HMGet(ctx, metaKey(key), metaFields...))
	if err != nil {
		return nil, s.fault("reading", key, err)
	}
	return &chunkReader{ctx: ctx, store: s, meta: m}, nil
}

// chunkReader reads an object chunk by chunk, in the generation it had when
// the reading began.
type chunkReader struct {
	ctx   context.Context //nolint:containedctx // lives as long as one Get
	store *redisStore
	meta  meta
	next  int
	done  int64
	buf   string
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if r.done == r.meta.Size {
		return 0, io.EOF
	}
	if r.buf == "" {
		want := min(chunkSize, r.meta.Size-r.done)
		buf, err := r.store.rdb.Get(r.ctx, chunkKey(r.meta.Key, r.meta.gen, r.next)).Result()
		if errors.Is(err, redis.Nil) || err == nil && int64(len(buf)) < want {
			err = errors.New("object was deleted or replaced while it was read")
		}
		if err != nil {
			return 0, r.store.fault("reading", r.meta.Key, err)
		}
		r.buf = buf[:want]
		r.next++
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	r.done += int64(n)
	return n, nil
}

func (r *chunkReader) Close() error { return nil }

func (s *redisStore) String() string { return "redis" }

func (s *redisStore) Close() error { return nil }

// meta is what the store knows of an object.
type meta struct {
	Info
	gen string
}

var metaFields = []string{"gen", "size", "at"}

func readMeta(key string, cmd *redis.SliceCmd) (meta, error) {
	v, err := cmd.Result()
	if err != nil {
		return meta{}, err
	}
	gen, _ := v[0].(string) // absent fields are nil
	if gen == "" {
		return meta{}, ErrNotFound
	}
	size, err1 := number(v[1])
	at, err2 := number(v[2])
	if err := errors.Join(err1, err2); err != nil {
		return meta{}, fmt.Errorf("damaged record of the object: %w", err)
	}
	return meta{Info: Info{Key: key, Size: size, Modified: time.UnixMilli(at)}, gen: gen}, nil
}

func number(v any) (int64, error) {
	s, _ := v.(string) // not a string reads as a damaged number
	return strconv.ParseInt(s, 10, 64)
}
