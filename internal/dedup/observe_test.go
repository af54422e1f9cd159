package dedup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// heard keeps what an observer hears.
type heard struct {
	began int
	all   []dedup.Observation
}

// Claiming counts.
func (h *heard) Claiming() { h.began++ }

// Claimed keeps.
func (h *heard) Claimed(o *dedup.Observation) { h.all = append(h.all, *o) }

func TestObserved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	claims, err := dedup.Open(server.Client(t), dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	require.False(t, claims.TierUp(), "there is none")
	var a, b heard
	c := dedup.Observe(claims, dedup.Observers{&a, &b})
	claim := func(name, runKey string) dedup.Claim {
		return dedup.Claim{
			Key: dedup.Key{Tenant: "t", Project: "p", Name: name}, Owner: dedup.Owner{RunKey: runKey, WorkflowID: "w", RunID: runKey},
			Request: dedup.Request{ID: runKey},
		}
	}
	_, err = c.Claim(t.Context(), claim("k", "one"))
	require.NoError(t, err)
	_, err = c.ClaimBatch(t.Context(), []dedup.Claim{claim("k", "two"), claim("k2", "two")})
	require.NoError(t, err)
	server.Stop(t)
	_, err = c.Claim(t.Context(), claim("k", "three"))
	require.ErrorIs(t, err, dedup.ErrUnavailable)

	require.Equal(t, 4, a.began)
	require.Len(t, a.all, 4)
	decisions := make([]dedup.Decision, 0, 4)
	for _, o := range a.all {
		decisions = append(decisions, o.Decision)
		require.Positive(t, o.Took)
	}
	require.Equal(t, []dedup.Decision{dedup.Granted, dedup.InFlight, dedup.Granted, ""}, decisions)
	require.Equal(t, "k2", a.all[2].Key.Name)
	require.Error(t, a.all[3].Err)
	require.Equal(t, a.all, b.all)
}

func TestLastIsWhateverBecameOfIt(t *testing.T) {
	t.Parallel()
	claims, err := dedup.Open(redistest.Start(t).Client(t), dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	key := dedup.Key{Tenant: "t", Project: "p", Pipeline: "x", Name: "k"}
	last := func() *dedup.Record {
		r, err := claims.Last(t.Context(), key)
		require.NoError(t, err)
		return r
	}
	claim := func(run string) {
		_, err := claims.Claim(t.Context(), dedup.Claim{
			Key: key, Owner: dedup.Owner{RunKey: run, WorkflowID: "w", RunID: run}, Request: dedup.Request{ID: run},
		})
		require.NoError(t, err)
	}
	require.Nil(t, last())
	claim("one")
	require.Equal(t, dedup.Running, last().State)
	_, err = claims.ReleaseByOperator(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, dedup.Released, last().State)
	require.Equal(t, "one", last().Owner.RunID)
	found, err := claims.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, found)
	claim("two")
	require.Equal(t, "two", last().Owner.RunID)
}
