package store_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/redistest"
	"belay.run/internal/store"
)

func TestRedisIsLeftClean(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	st := open(t, "redis", rdb)
	_, err := st.Put(t.Context(), "k", strings.NewReader(random(2_000_000)), 1_500_000)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.Zero(t, rdb.DBSize(t.Context()).Val())
	put(t, st, "a/1", random(2_000_000))
	require.NoError(t, st.Append(t.Context(), "a/2", 0, []byte(random(2_000_000))))
	require.NoError(t, st.Delete(t.Context(), "a"))
	require.Zero(t, rdb.DBSize(t.Context()).Val())

	// What is replaced stays for a minute, for those who are reading it.
	put(t, st, "k", random(2_000_000))
	put(t, st, "k", random(1_000_000))
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	expire := 0
	for _, key := range keys {
		require.True(t, strings.HasPrefix(key, "belay:store"), key)
		if ttl := rdb.TTL(t.Context(), key).Val(); ttl > 0 {
			require.LessOrEqual(t, ttl.Seconds(), 60.0)
			expire++
		}
		if rdb.Type(t.Context(), key).Val() == "string" {
			require.LessOrEqual(t, rdb.StrLen(t.Context(), key).Val(), int64(256<<10))
		}
	}
	require.Equal(t, 8, expire)
	require.Len(t, keys, 2+4+8)
}

func TestFullRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction").Client(t)
	st := open(t, "redis", rdb)
	put(t, st, "kept", "x")
	_, err := st.Put(t.Context(), "k", endless{}, 100<<20)
	require.ErrorIs(t, err, store.ErrFull)
	require.ErrorContains(t, err, "store redis")
	require.Equal(t, []string{"kept"}, list(t, st, ""))

	off, piece := int64(0), make([]byte, 200_000)
	for err = nil; err == nil; off += int64(len(piece)) {
		err = st.Append(t.Context(), "log", off, piece)
	}
	require.ErrorIs(t, err, store.ErrFull)
	info, err := st.Stat(t.Context(), "log")
	require.NoError(t, err)
	require.Equal(t, off-int64(len(piece)), info.Size)
	require.NoError(t, st.Delete(t.Context(), "log"))
	put(t, st, "again", "there is room")
}

// answerLoser passes commands on to Redis. When lose is set, it closes the next
// connection on which an answer comes instead of passing that on.
func answerLoser(t testing.TB, to string, lose *atomic.Bool) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				server, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", to)
				if err != nil {
					t.Error(err)
					return
				}
				group.Go(func() {
					_, _ = io.Copy(server, client) // ends with either connection
					_ = server.Close()
				})
				for answer := make([]byte, 64<<10); ; {
					n, err := server.Read(answer)
					if err != nil || lose.CompareAndSwap(true, false) {
						break
					}
					_, _ = client.Write(answer[:n]) // ends with either connection
				}
				_ = client.Close()
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		group.Wait()
	})
	return l.Addr().String()
}

// The client repeats a command when the answer is lost: that appends once.
func TestRedisThatLosesAnAnswer(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	addr := answerLoser(t, redistest.Start(t).Addr, &lose)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	st := open(t, "redis", rdb)
	require.NoError(t, st.Append(t.Context(), "k", 0, []byte("zero")))
	lose.Store(true)
	require.NoError(t, st.Append(t.Context(), "k", 4, []byte("one")))
	require.False(t, lose.Load(), "no answer was lost")
	require.Equal(t, "zeroone", get(t, st, "k"))
	lose.Store(true)
	put(t, st, "k", "two")
	require.Equal(t, "two", get(t, st, "k"))
}

func TestRedisThatComesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	st := open(t, "redis", server.Client(t))
	require.NoError(t, st.Append(t.Context(), "k", 0, []byte("one")))
	server.Stop(t)
	require.Error(t, st.Append(t.Context(), "k", 3, []byte("two")))
	_, err := st.Get(t.Context(), "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrNotFound)
	server.Restart(t)
	require.ErrorIs(t, st.Append(t.Context(), "k", 3, []byte("two")), store.ErrConflict, "what it held is lost")
}
