package dedup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

const (
	raceProcesses  = 4
	raceGoroutines = 64 / raceProcesses
)

// raceKey is one of the keys that all race for.
func raceKey(i int) dedup.Key {
	return dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: fmt.Sprint("key ", i)}
}

// executed counts executions of a key by an algorithm.
func executed(ctx context.Context, rdb redis.UniversalClient, algorithm string, i int) error {
	return rdb.HIncrBy(ctx, algorithm, strconv.Itoa(i), 1).Err()
}

// race is one of the processes: each of its goroutines wants to run each key,
// first by the published algorithm, then by claims.
func race(addr, process string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: raceGoroutines})
	claims, err := dedup.Open(rdb, dedup.Options{Tier: true})
	if err != nil {
		return err
	}
	defer claims.Close()
	p := &published{rdb: rdb, kind: true}
	starts := bufio.NewScanner(in)
	for _, algorithm := range []func(goroutine, i int) error{
		func(_, i int) error {
			_, err := p.run(ctx, "published:"+strconv.Itoa(i), func() error { return executed(ctx, rdb, "published", i) })
			return err
		},
		func(g, i int) error {
			owner := dedup.Owner{RunKey: fmt.Sprint(process, "-", g, "-", i)}
			v, err := claims.Claim(ctx, dedup.Claim{Key: raceKey(i), Owner: owner, Request: dedup.Request{ID: owner.RunKey}})
			if err != nil || !v.Decision.Runs() {
				return err
			}
			if err := executed(ctx, rdb, "claims", i); err != nil {
				return err
			}
			return claims.Settle(ctx, dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour})
		},
	} {
		_, _ = fmt.Fprintln(out, "ready")
		if !starts.Scan() {
			return errors.New("no start")
		}
		var (
			group sync.WaitGroup
			errs  = make([]error, raceGoroutines)
		)
		for g := range raceGoroutines {
			group.Go(func() {
				for i := 0; i < raceKeys && errs[g] == nil; i++ {
					errs[g] = algorithm(g, i)
				}
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// racer is the test's end of a process.
type racer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startRacer(t testing.TB, addr string, n int) racer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_MAIN=race", "RACE_ADDR="+addr, "RACE_PROCESS="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return racer{cmd: cmd, in: in, out: bufio.NewScanner(out)}
}

func TestRaceOfProcesses(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	racers := make([]racer, raceProcesses)
	for i := range racers {
		racers[i] = startRacer(t, server.Addr, i)
	}
	for range 2 {
		for _, r := range racers {
			require.True(t, r.out.Scan(), "a process has ended early")
			require.Equal(t, "ready", r.out.Text())
		}
		for _, r := range racers {
			_, err := r.in.Write([]byte("start\n"))
			require.NoError(t, err)
		}
	}
	for _, r := range racers {
		require.NoError(t, r.cmd.Wait())
	}
	twice := func(algorithm string) (keys, most int) {
		counts, err := rdb.HGetAll(t.Context(), algorithm).Result()
		require.NoError(t, err)
		require.Len(t, counts, raceKeys, "each key ran")
		for _, text := range counts {
			n, err := strconv.Atoi(text)
			require.NoError(t, err)
			most = max(most, n)
			if n > 1 {
				keys++
			}
		}
		return keys, most
	}
	keys, most := twice("claims")
	require.Zero(t, keys)
	require.Equal(t, 1, most)
	keys, most = twice("published")
	t.Logf("GET then SETEX: %d of %d keys ran more than once, up to %d times; claims: none", keys, raceKeys, most)
	require.Positive(t, keys)
	require.Greater(t, most, 1)
}

func racing() int {
	err := race(os.Getenv("RACE_ADDR"), os.Getenv("RACE_PROCESS"), os.Stdin, os.Stdout)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		return 1
	}
	return 0
}
