package api

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is one that a test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(1e9, c.at.Load()) }

func (c *clock) pass(d time.Duration) { c.at.Add(int64(d)) }

func TestWrongTokensAreBounded(t *testing.T) {
	t.Parallel()
	var c clock
	b := setup(t, options{config: Config{Tokens: tokens(t), now: c.now}})
	ask := func(token string) answer {
		return b.ask(t, http.MethodGet, "/api/v1/executor/status", http.NoBody, "Authorization", "Bearer "+token)
	}
	require.Equal(t, http.StatusOK, ask(opsToken).StatusCode)
	for i := range wrongBurst {
		problem(t, ask(fmt.Sprint("wrong", i)), http.StatusUnauthorized, "unauthorized")
		problem(t, ask(""), http.StatusUnauthorized, "unauthorized") // none is no guess
	}
	a := ask("wrong")
	p := problem(t, a, http.StatusTooManyRequests, "too_many_attempts")
	require.Equal(t, int(wrongEvery.Seconds()), p.RetryAfter)
	require.Empty(t, a.Header.Get("WWW-Authenticate"))
	problem(t, ask(shopToken), http.StatusTooManyRequests, "too_many_attempts")
	require.Equal(t, http.StatusOK, ask(opsToken).StatusCode, "it was right from there before")

	c.pass(wrongEvery)
	require.Equal(t, http.StatusOK, ask(shopToken).StatusCode)
	problem(t, ask("wrong"), http.StatusUnauthorized, "unauthorized")
	problem(t, ask("wrong"), http.StatusTooManyRequests, "too_many_attempts")
	require.Equal(t, http.StatusOK, ask(shopToken).StatusCode)
}

func TestAddressesHaveTheirOwnBuckets(t *testing.T) {
	t.Parallel()
	var c clock
	a := attempts{now: c.now}
	known := tokens(t)
	try := func(remote, token string) (bool, bool) {
		_, ok, wait := a.find(known, remote, token)
		return ok, wait > 0
	}
	for range wrongBurst {
		ok, late := try("10.0.0.1:1", "wrong")
		require.False(t, ok || late)
	}
	_, late := try("10.0.0.1:2", "wrong")
	require.True(t, late, "another port is no other address")
	// Another one shares its slot once in four thousand times.
	free := 0
	for i := range 100 {
		if ok, _ := try(fmt.Sprintf("10.0.1.%d:1", i), shopToken); ok {
			free++
		}
	}
	require.Greater(t, free, 90)
	for i := range 3 * addressSlots {
		try(fmt.Sprintf("10.%d.%d.1:1", i>>8, i&255), "wrong")
	}
	require.LessOrEqual(t, len(a.slots), addressSlots)
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "@", "name:1": "name",
	} {
		require.Equal(t, want, network(remote), remote)
	}
}
