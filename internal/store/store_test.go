package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/redistest"
	"belay.run/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }

func open(t testing.TB, location string, rdb redis.UniversalClient) store.Store {
	t.Helper()
	st, err := store.Open(context.WithoutCancel(t.Context()), location, rdb)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	return st
}

func embedded(t testing.TB) redis.UniversalClient {
	t.Helper()
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.Start())
	t.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// everyStore runs a test on each kind of store.
func everyStore(t *testing.T, test func(t *testing.T, st store.Store)) {
	t.Helper()
	for name, make := range map[string]func(t testing.TB) store.Store{
		"directory":      func(t testing.TB) store.Store { t.Helper(); return open(t, "file://"+t.TempDir(), nil) },
		"embedded Redis": func(t testing.TB) store.Store { t.Helper(); return open(t, "redis", embedded(t)) },
		"real Redis":     func(t testing.TB) store.Store { t.Helper(); return open(t, "redis", redistest.Start(t).Client(t)) },
		"Redis Cluster": func(t testing.TB) store.Store {
			t.Helper()
			return open(t, "redis", redistest.StartCluster(t).Client(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

func put(t testing.TB, st store.Store, key, text string) {
	t.Helper()
	info, err := st.Put(t.Context(), key, strings.NewReader(text), 0)
	require.NoError(t, err)
	require.Equal(t, key, info.Key)
	require.Equal(t, int64(len(text)), info.Size)
}

func get(t testing.TB, st store.Store, key string) string {
	t.Helper()
	r, err := st.Get(t.Context(), key)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return string(text)
}

func list(t testing.TB, st store.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range st.List(t.Context(), prefix) {
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), info.Modified, time.Minute)
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	return keys
}

// awkward are keys that have to be kept apart and given back as they are.
var awkward = []string{
	"a", "a/b", "a/b/c", "A", "a.obj", "a.obj/b", ".obj", ".", "..", "../..", "../a", "...", ".tmp", ".tmp/x", "-", "~", "a b", "a\x00b", "\n",
	"%", "%25", "a%2Fb", "build[os=linux,arch=a%2Cb]/compile/1", "ünïcode", "\xff\xfe", "{", "}", "{x}", "a{b}c", "{}a", "*", "?", `\`, `"`, "'",
	strings.Repeat("n", 240), strings.Repeat("n", 241), strings.Repeat("n", 255), strings.Repeat("n", 1000), strings.Repeat("n", 1000) + "/x",
	strings.Repeat(".", 500), strings.Repeat("ü", 500), strings.Repeat("x", 240) + "..", strings.Repeat("x", 236) + ".obj", strings.Repeat("p/", 100) + "p",
}

func TestKeysMayHoldAnything(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		for i, key := range awkward {
			put(t, st, key, fmt.Sprintf("%d", i))
		}
		for i, key := range awkward {
			require.Equal(t, fmt.Sprintf("%d", i), get(t, st, key), "%q", key)
			require.Contains(t, list(t, st, key), key)
		}
		want := slices.Clone(awkward)
		slices.Sort(want)
		require.Equal(t, want, list(t, st, ""))
		for _, key := range awkward {
			require.NoError(t, st.Delete(t.Context(), key))
		}
		require.Empty(t, list(t, st, ""))
	})
}

func TestKeysThatNameNothingAreRefused(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		for _, key := range []string{"", "/", "/a", "a/", "a//b", strings.Repeat("x", 2049)} {
			_, err := st.Put(t.Context(), key, strings.NewReader(""), 0)
			require.ErrorContains(t, err, "store key")
			_, err = st.Get(t.Context(), key)
			require.ErrorContains(t, err, "store key")
			_, err = st.Stat(t.Context(), key)
			require.ErrorContains(t, err, "store key")
			_, err = st.ReadAt(t.Context(), key, nil, 0)
			require.ErrorContains(t, err, "store key")
			require.ErrorContains(t, st.Append(t.Context(), key, 0, nil), "store key")
			require.ErrorContains(t, st.Delete(t.Context(), key), "store key")
		}
	})
}

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		for _, size := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 3 << 20} {
			text := random(size)
			put(t, st, "k", text)
			same(t, text, get(t, st, "k"))
			info, err := st.Stat(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, int64(size), info.Size)
		}
		require.Equal(t, []string{"k"}, list(t, st, ""))
	})
}

func random(size int) string {
	r := rand.NewChaCha8(sha256.Sum256([]byte{byte(size)}))
	b := make([]byte, size)
	_, _ = r.Read(b) // never fails
	return string(b)
}

// same compares long texts, without a difference that nobody could read.
func same(t testing.TB, want, got string) {
	t.Helper()
	require.Len(t, []byte(got), len(want))
	require.Equal(t, sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got)), "the bytes differ")
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		put(t, st, "a/b", "x")
		for _, key := range []string{"none", "a", "a/b/c", "a/bb"} {
			_, err := st.Get(t.Context(), key)
			require.ErrorIs(t, err, store.ErrNotFound)
			require.ErrorContains(t, err, key)
			_, err = st.Stat(t.Context(), key)
			require.ErrorIs(t, err, store.ErrNotFound)
			_, err = st.ReadAt(t.Context(), key, make([]byte, 1), 0)
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		require.Empty(t, list(t, st, "none"))
		require.NoError(t, st.Delete(t.Context(), "none"))
		require.Equal(t, []string{"a/b"}, list(t, st, ""))
	})
}

// A Put that fails changes nothing and leaves nothing.
func TestPutIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		broken := errors.New("broken")
		half := func() io.Reader { return io.MultiReader(strings.NewReader(random(600_000)), iotest.ErrReader(broken)) }
		_, err := st.Put(t.Context(), "new", half(), 0)
		require.ErrorIs(t, err, broken)
		require.NotErrorIs(t, err, store.ErrNotFound)
		_, err = st.Put(t.Context(), "new", strings.NewReader(random(600_000)), 599_999)
		require.ErrorIs(t, err, store.ErrTooLarge)
		require.Empty(t, list(t, st, ""))

		put(t, st, "old", "what was there")
		_, err = st.Put(t.Context(), "old", half(), 0)
		require.ErrorIs(t, err, broken)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(broken)
		_, err = st.Put(ctx, "old", strings.NewReader("x"), 0)
		require.ErrorIs(t, err, broken)
		require.Equal(t, "what was there", get(t, st, "old"))
		_, err = st.Put(t.Context(), "old", strings.NewReader(random(600_000)), 600_000)
		require.NoError(t, err, "the limit itself is allowed")
	})
}

// Who reads an object while it is replaced sees the one or the other.
func TestReadersSeeOneObject(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		texts := []string{strings.Repeat("a", 700_000), strings.Repeat("b", 900_000)}
		put(t, st, "k", texts[0])
		slow, err := st.Get(t.Context(), "k")
		require.NoError(t, err)
		first := make([]byte, 10)
		_, err = io.ReadFull(slow, first)
		require.NoError(t, err)

		var group sync.WaitGroup
		stop := make(chan struct{})
		group.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := st.Put(t.Context(), "k", strings.NewReader(texts[i%2]), 0); err != nil {
					t.Error(err)
				}
			}
		})
		for range 10 {
			text := get(t, st, "k")
			require.True(t, text == texts[0] || text == texts[1], "a mixture of %d bytes", len(text))
		}
		close(stop)
		group.Wait()
		rest, err := io.ReadAll(slow)
		require.NoError(t, err)
		require.NoError(t, slow.Close())
		same(t, texts[0], string(first)+string(rest))
	})
}

func TestAppend(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		all := random(1_200_000)
		sizes := []int{1, 100, 256<<10 - 101, 1, 256 << 10, 600_000}
		off := 0
		for _, n := range sizes {
			require.NoError(t, st.Append(t.Context(), "log/x", int64(off), []byte(all[off:off+n])))
			off += n
			info, err := st.Stat(t.Context(), "log/x")
			require.NoError(t, err)
			require.Equal(t, int64(off), info.Size)
		}
		same(t, all[:off], get(t, st, "log/x"))
		require.Equal(t, []string{"log/x"}, list(t, st, "log"))

		for _, r := range [][2]int{{0, 10}, {0, off}, {256<<10 - 5, 10}, {100, 700_000}, {off - 3, 3}, {off - 3, 10}, {off, 10}, {off + 100, 10}, {5, 0}} {
			p := make([]byte, r[1])
			n, err := st.ReadAt(t.Context(), "log/x", p, int64(r[0]))
			want := all[min(r[0], off):min(r[0]+r[1], off)]
			same(t, want, string(p[:n]))
			if len(want) < r[1] {
				require.Equal(t, io.EOF, err)
			} else {
				require.NoError(t, err)
			}
		}
	})
}

// Two writers of one object find out, and nothing is lost or torn.
func TestAppendWhereItDoesNotEndIsAConflict(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		require.ErrorIs(t, st.Append(t.Context(), "k", 5, []byte("x")), store.ErrConflict)
		_, err := st.Stat(t.Context(), "k")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.NoError(t, st.Append(t.Context(), "k", 0, []byte("one")))
		for _, off := range []int64{0, 1, 2, 4} {
			require.ErrorIs(t, st.Append(t.Context(), "k", off, []byte("two")), store.ErrConflict)
		}
		require.Equal(t, "one", get(t, st, "k"))
		require.NoError(t, st.Append(t.Context(), "k", 3, []byte("two")))
		require.Equal(t, "onetwo", get(t, st, "k"))

		put(t, st, "k", "replaced")
		require.ErrorIs(t, st.Append(t.Context(), "k", 6, []byte("x")), store.ErrConflict)
		require.NoError(t, st.Delete(t.Context(), "k"))
		require.ErrorIs(t, st.Append(t.Context(), "k", 8, []byte("x")), store.ErrConflict)
		require.NoError(t, st.Append(t.Context(), "k", 0, []byte("again")))
		require.Equal(t, "again", get(t, st, "k"))

		var group sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 20 {
			group.Go(func() {
				err := st.Append(t.Context(), "race", 0, []byte("x"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		require.Equal(t, 1, won)
	})
}

func TestAGrowingObjectIsReadAsItWas(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		require.NoError(t, st.Append(t.Context(), "k", 0, []byte("one")))
		r, err := st.Get(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), "k", 3, []byte("two")))
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "one", string(text))
	})
}

func TestListAndDeleteMeanFolders(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		keys := []string{"logs/r1", "logs/r1/a/1", "logs/r1/a/2", "logs/r1-x/a/1", "logs/r10/a/1", "logs/r1.x", "logs/r1 x", "source/s"}
		for _, key := range keys {
			put(t, st, key, "x")
		}
		require.Equal(t, []string{"logs/r1", "logs/r1/a/1", "logs/r1/a/2"}, list(t, st, "logs/r1"))
		require.Equal(t, []string{"logs/r1/a/1"}, list(t, st, "logs/r1/a/1"))
		require.Empty(t, list(t, st, "logs/r"))
		require.NoError(t, st.Delete(t.Context(), "logs/r1"))
		require.ElementsMatch(t, keys[3:], list(t, st, ""))
		require.NoError(t, st.Delete(t.Context(), "logs/r"))
		require.ElementsMatch(t, keys[3:], list(t, st, ""))
		require.NoError(t, st.Delete(t.Context(), "logs"))
		require.Equal(t, []string{"source/s"}, list(t, st, ""))
	})
}

func TestListOfManyAndStopping(t *testing.T) {
	t.Parallel()
	everyStore(t, func(t *testing.T, st store.Store) {
		t.Helper()
		const n = 300
		for i := range n {
			require.NoError(t, st.Append(t.Context(), fmt.Sprintf("many/%d", i), 0, []byte("x")))
		}
		require.Len(t, list(t, st, "many"), n)
		next, stop := iter.Pull2(st.List(t.Context(), "many"))
		_, err, ok := next()
		require.NoError(t, err)
		require.True(t, ok)
		stop()
		require.NoError(t, st.Delete(t.Context(), "many"))
		require.Empty(t, list(t, st, ""))
	})
}

func TestOpenSaysWhatItWants(t *testing.T) {
	t.Parallel()
	for _, location := range []string{"", "/dir", "file:dir", "file://dir", "file://host/dir", "file:///dir?x", "s3://bucket", "Redis", "redis://x", "file://%zz"} {
		_, err := store.Open(t.Context(), location, embedded(t))
		require.ErrorContains(t, err, `"redis" or "file:///absolute/dir"`, "%q", location)
	}
	_, err := store.Open(t.Context(), "redis", nil)
	require.ErrorContains(t, err, "REDIS_URL")
	_, err = store.Open(t.Context(), "file:///dev/null/dir", nil)
	require.ErrorContains(t, err, "opening store /dev/null/dir")
	st := open(t, "file://"+t.TempDir()+"/with%20space/made", nil)
	require.True(t, strings.HasSuffix(st.String(), "/with space/made"))
	put(t, st, "k", "x")
}

func BenchmarkStore(b *testing.B) {
	text := bytes.Repeat([]byte("x"), 16<<20)
	for name, st := range map[string]store.Store{
		"directory": open(b, "file://"+b.TempDir(), nil),
		"Redis":     open(b, "redis", redistest.Start(b).Client(b)),
	} {
		b.Run("put "+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_, err := st.Put(b.Context(), "k", bytes.NewReader(text), 0)
				require.NoError(b, err)
			}
		})
		b.Run("get "+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r, err := st.Get(b.Context(), "k")
				require.NoError(b, err)
				_, err = io.Copy(io.Discard, r)
				require.NoError(b, err)
				require.NoError(b, r.Close())
			}
		})
	}
}
