package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// model is what is meant to be true of one key, and of all runs that ever asked
// for it. Time passes by steps only, each much longer than a test takes.
type model struct {
	t   *rapid.T
	ctx context.Context //nolint:containedctx // of the test
	b   *bundle

	state      dedup.State // "" before the first claim
	died       bool        // it was settled for a dead owner
	holder     string
	token      int64
	generation int
	sinceEnd   time.Duration
	// last is the highest token that anybody was given.
	last int64
	runs []*modelRun
	// began is which run a request id began.
	began map[string]*modelRun
}

// modelRun is a run that asked, and all it was ever granted.
type modelRun struct {
	claim  dedup.Claim
	grants []dedup.Record
	state  dedup.State
	dead   bool
}

const (
	modelWindow = time.Hour
	modelLate   = 10 * time.Minute
)

func (m *model) inside() bool { return m.state == dedup.Completed && m.sinceEnd < modelWindow }

func (m *model) run(key string) *modelRun {
	for _, r := range m.runs {
		if r.claim.Owner.RunKey == key {
			return r
		}
	}
	return nil
}

// expected is what a claim must come to, by the rules as they are written down.
func (m *model) expected(c dedup.Claim) dedup.Decision {
	mine, dies := m.holder == c.Owner.RunKey, m.state == dedup.Running && c.Dead == m.token
	began := m.began[c.Request.ID]
	switch {
	case mine && m.state == dedup.Running:
		return dedup.Resumed
	case mine && m.state == dedup.Completed, began != nil && began.claim.Owner == c.Owner && began.state == dedup.Completed:
		return dedup.Done
	case began != nil && began.claim.Owner != c.Owner:
		switch {
		case began.claim.Owner.RunKey != m.holder:
			return dedup.Redelivered
		case m.state == dedup.Running && !dies:
			return dedup.InFlight
		case m.inside():
			return dedup.Duplicate
		}
		return dedup.Redelivered
	case dies:
		return dedup.Granted
	case m.state == dedup.Running:
		return dedup.InFlight
	case m.inside() && !c.Rerun:
		return dedup.Duplicate
	case m.inside() && !c.Request.At.IsZero() && !c.Request.At.After(m.ended()):
		return dedup.Duplicate
	case (m.state == dedup.Failed || m.state == dedup.Canceled) && !m.died && !mine && m.sinceEnd < modelLate &&
		!c.Request.At.IsZero() && !c.Request.At.After(m.ended()):
		return dedup.Late
	}
	return dedup.Granted
}

// ended is when the claim ended, as Redis says: the one thing that is not the
// model's own.
func (m *model) ended() time.Time {
	fields, err := m.b.rdb.HGet(m.ctx, m.b.rdb.Keys(m.ctx, "belay:claim:{*}").Val()[0], "ended_at").Int64()
	require.NoError(m.t, err)
	return time.UnixMicro(fields)
}

// ask makes a claim and compares.
func (m *model) ask(r *modelRun, dead int64) {
	c := r.claim
	c.Dead = dead
	want := m.expected(c)
	v, err := m.b.Claim(m.ctx, c)
	require.NoError(m.t, err)
	require.Equal(m.t, want, v.Decision)
	dies := m.state == dedup.Running && dead == m.token
	if dies && (want == dedup.Granted || want == dedup.Redelivered) {
		m.run(m.holder).state = dedup.Canceled
	}
	switch {
	case want == dedup.Redelivered && dies:
		m.end(dedup.Canceled)
	case !want.Runs():
		require.NotEqual(m.t, c.Owner.RunKey == v.Record.Owner.RunKey, want != dedup.Done)
	default:
		if want == dedup.Granted && m.state != "" && !dies && !m.died {
			m.generation++
		}
		require.Greater(m.t, v.Record.Token, m.last, "tokens grow")
		require.Equal(m.t, m.generation, v.Record.Generation)
		m.died = false
		m.state, m.holder, m.token, m.last = dedup.Running, c.Owner.RunKey, v.Record.Token, v.Record.Token
		r.state = dedup.Running
		r.grants = append(r.grants, v.Record)
		if m.began[c.Request.ID] == nil {
			m.began[c.Request.ID] = r
		}
	}
}

func (m *model) end(state dedup.State) {
	m.state, m.sinceEnd, m.died = state, 0, false
	if r := m.run(m.holder); r != nil {
		r.state = state
	}
}

// newRun is a run that asks by a request of its own, or by one of before.
func (m *model) newRun(t *rapid.T) *modelRun {
	r := &modelRun{claim: by(fmt.Sprint("run ", len(m.runs)))}
	if len(m.runs) > 0 && rapid.IntRange(0, 3).Draw(t, "redelivered") == 0 {
		r.claim.Request = rapid.SampledFrom(m.runs).Draw(t, "request").claim.Request
	}
	if rapid.Bool().Draw(t, "knows when") {
		now, err := m.b.Now(m.ctx)
		require.NoError(m.t, err)
		r.claim.Request.At = now
	}
	r.claim.Rerun = rapid.IntRange(0, 3).Draw(t, "rerun") == 0
	r.claim.Lease = time.Duration(rapid.IntRange(0, 1).Draw(t, "lease")) * 30 * time.Second
	m.runs = append(m.runs, r)
	return r
}

// grant is any claim that anybody was ever granted.
func (m *model) grant(t *rapid.T) (*modelRun, dedup.Record) {
	var runs []*modelRun
	for _, r := range m.runs {
		if len(r.grants) > 0 {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		t.Skip("nobody was granted anything")
	}
	r := rapid.SampledFrom(runs).Draw(t, "run")
	return r, rapid.SampledFrom(r.grants).Draw(t, "grant")
}

// holds reports whether a grant is the present one.
func (m *model) holds(r dedup.Record) bool {
	return m.state == dedup.Running && r.Owner.RunKey == m.holder && r.Token == m.token
}

func (m *model) actions() map[string]func(*rapid.T) {
	ctx := m.ctx
	return map[string]func(*rapid.T){
		"claim": func(t *rapid.T) { m.ask(m.newRun(t), 0) },
		"wait":  func(t *rapid.T) { m.newRun(t) }, // and claim later
		"claim again": func(t *rapid.T) {
			if len(m.runs) == 0 {
				t.Skip("nobody is there")
			}
			m.ask(rapid.SampledFrom(m.runs).Draw(t, "run"), 0)
		},
		"renew": func(t *rapid.T) {
			_, grant := m.grant(t)
			err := m.b.Renew(ctx, grant, 30*time.Second)
			require.Equal(m.t, m.holds(grant), err == nil)
			require.Equal(m.t, !m.holds(grant), errors.Is(err, dedup.ErrNotOwner))
		},
		"settle": func(t *rapid.T) {
			_, grant := m.grant(t)
			state := rapid.SampledFrom([]dedup.State{dedup.Completed, dedup.Failed, dedup.Canceled}).Draw(t, "state")
			died := rapid.IntRange(0, 3).Draw(t, "the owner died") == 0
			s := dedup.Settlement{Held: held(grant), State: state, Window: modelWindow, Died: died}
			if rapid.Bool().Draw(t, "with its grant") {
				s.Grant = &grant
			}
			again := grant.Token == m.token && grant.Owner.RunKey == m.holder && m.state == state
			err := m.b.Settle(ctx, s)
			require.Equal(m.t, m.holds(grant) || again, err == nil)
			require.Equal(m.t, err != nil, errors.Is(err, dedup.ErrNotOwner))
			if m.holds(grant) {
				m.end(state)
				m.died = died && state == dedup.Canceled
			}
		},
		"crash": func(t *rapid.T) {
			if m.state != dedup.Running {
				t.Skip("nobody runs")
			}
			m.run(m.holder).dead = true
		},
		"takeover": func(t *rapid.T) {
			if m.state != dedup.Running || !m.run(m.holder).dead {
				t.Skip("nobody is dead")
			}
			m.ask(m.newRun(t), m.token)
		},
		"takeover of what was": func(t *rapid.T) {
			_, grant := m.grant(t)
			if !m.holds(grant) {
				m.ask(m.newRun(t), grant.Token)
			}
		},
		"time passes": func(t *rapid.T) {
			d := rapid.SampledFrom([]time.Duration{4 * time.Minute, 25 * time.Minute}).Draw(t, "time")
			m.b.pass(d)
			m.sinceEnd += d
			for _, r := range m.runs {
				if !r.claim.Request.At.IsZero() {
					r.claim.Request.At = r.claim.Request.At.Add(-d)
				}
			}
		},
		"release": func(*rapid.T) {
			r, err := m.b.ReleaseByOperator(ctx, pipelineKey)
			require.NoError(m.t, err)
			ended := (m.state == dedup.Failed || m.state == dedup.Canceled) && !m.died
			require.Equal(m.t, m.state == dedup.Running || m.inside() || ended && m.sinceEnd < modelLate, r != nil)
			if r != nil {
				m.end(dedup.Released)
				m.token = 0 // nobody's
			}
		},
		"": m.check,
	}
}

// check compares what Redis has with the model.
func (m *model) check(*rapid.T) {
	ctx := m.ctx
	r, err := m.b.Lookup(ctx, pipelineKey)
	require.NoError(m.t, err)
	ended := (m.state == dedup.Failed || m.state == dedup.Canceled) && !m.died
	require.Equal(m.t, m.state == dedup.Running || m.inside() || ended && m.sinceEnd < modelLate, r != nil)
	if r != nil {
		require.Equal(m.t, m.state, r.State)
		require.Equal(m.t, m.holder, r.Owner.RunKey)
		require.Equal(m.t, m.token, r.Token)
		require.Equal(m.t, m.generation, r.Generation)
	}
	var holders []string
	for _, run := range m.runs {
		for _, grant := range run.grants {
			if m.b.Renew(ctx, grant, time.Minute) == nil {
				holders = append(holders, grant.Owner.RunKey)
			}
		}
	}
	if m.state == dedup.Running {
		require.Equal(m.t, []string{m.holder}, holders)
	} else {
		require.Empty(m.t, holders)
	}
	for id, run := range m.began {
		r, err := m.b.LookupRequest(ctx, pipelineKey, id)
		require.NoError(m.t, err)
		require.Equal(m.t, run.claim.Owner, r.Owner)
		require.Equal(m.t, run.state, r.State)
	}
}

func TestPropertyOfAnyInterleaving(t *testing.T) {
	t.Parallel()
	b := newBundle(t, redistest.Start(t).Client(t))
	rapid.Check(t, func(rt *rapid.T) {
		require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
		m := &model{t: rt, ctx: t.Context(), b: b, began: map[string]*modelRun{}}
		rt.Repeat(m.actions())
	})
}

// Where Redis forgets, nobody can say who runs; but tokens grow on, and of all
// who come back only the one with the highest stays.
func TestPropertyOfLostMemory(t *testing.T) {
	t.Parallel()
	b := newBundle(t, redistest.Start(t).Client(t))
	rapid.Check(t, func(rt *rapid.T) {
		require.NoError(rt, b.rdb.FlushAll(t.Context()).Err())
		var grants []dedup.Record
		last := int64(0)
		claim := func(dead int64) {
			c := by(fmt.Sprint("run ", len(grants)))
			c.Dead = dead
			v, err := b.Claim(t.Context(), c)
			require.NoError(rt, err)
			if v.Decision.Runs() {
				require.Greater(rt, v.Record.Token, last)
				last = v.Record.Token
				grants = append(grants, v.Record)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"claim":    func(*rapid.T) { claim(0) },
			"takeover": func(*rapid.T) { claim(last) },
			"lose":     func(*rapid.T) { require.NoError(rt, b.rdb.FlushAll(t.Context()).Err()) },
			"renew": func(rt *rapid.T) {
				if len(grants) == 0 {
					rt.Skip("nobody was granted anything")
				}
				err := b.Renew(t.Context(), rapid.SampledFrom(grants).Draw(rt, "grant"), 0)
				require.True(rt, err == nil || errors.Is(err, dedup.ErrNotOwner))
			},
		})
		if len(grants) == 0 {
			return
		}
		for _, grant := range rapid.Permutation(grants).Draw(rt, "order") {
			err := b.Renew(t.Context(), grant, 0)
			require.True(rt, err == nil || errors.Is(err, dedup.ErrNotOwner))
		}
		r, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(rt, err)
		require.Equal(rt, last, r.Token)
	})
}
