package store

import (
	"context"
	"errors"
	"iter"

	"github.com/redis/go-redis/v9"
)

func (s *redisStore) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for keys, err := range s.pages(ctx, prefix) {
			var infos []Info
			if err == nil {
				infos, err = s.stats(ctx, keys)
			}
			if err != nil {
				yield(Info{}, s.fault("listing", prefix, err))
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
		}
	}
}

// pages yields the keys of the index that are prefix or under it.
func (s *redisStore) pages(ctx context.Context, prefix string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		from, to := "["+prefix, "("+prefix+"0" // "0" comes right after "/"
		if prefix == "" {
			from, to = "-", "+"
		}
		for {
			found, err := s.rdb.ZRangeByLex(ctx, indexKey, &redis.ZRangeBy{Min: from, Max: to, Count: page}).Result()
			var keys []string
			for _, key := range found {
				if under(key, prefix) {
					keys = append(keys, key)
				}
			}
			if !yield(keys, err) || err != nil || len(found) < page {
				return
			}
			from = "(" + found[len(found)-1]
		}
	}
}

// stats describes those of keys that are objects. A key can be in the index
// and no object: one that is being written, or whose writer died.
func (s *redisStore) stats(ctx context.Context, keys []string) ([]Info, error) {
	cmds := make([]*redis.SliceCmd, len(keys))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			cmds[i] = p.HMGet(ctx, metaKey(key), metaFields...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(keys))
	for i, key := range keys {
		m, err := readMeta(key, cmds[i])
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, m.Info)
	}
	return infos, nil
}

func (s *redisStore) Delete(ctx context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	for keys, err := range s.pages(ctx, prefix) {
		if err == nil {
			err = s.deleteAll(ctx, keys)
		}
		if err != nil {
			return s.fault("deleting", prefix, err)
		}
	}
	return nil
}

// deleteAll removes objects and then their entries in the index, so that what
// is interrupted can be deleted again.
func (s *redisStore) deleteAll(ctx context.Context, keys []string) error {
	members := make([]any, len(keys))
	for i, key := range keys {
		members[i] = key
		if err := deleteScript.Run(ctx, s.rdb, []string{metaKey(key)}, chunkPrefix(key)).Err(); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return s.rdb.ZRem(ctx, indexKey, members...).Err()
}
