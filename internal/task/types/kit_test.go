package types_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/outbound"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }

// secrets are those of a test.
type secrets map[string]string

func (s secrets) Get(_ context.Context, name string) (secret.Value, error) {
	text, ok := s[name]
	if !ok {
		return secret.Value{}, fmt.Errorf("secret %s: %w", name, secret.ErrNotFound)
	}
	return secret.NewValue(name, text), nil
}

func (secrets) Where(string) string { return "the test" }

// testBundle runs tasks against this machine.
type testBundle struct {
	types.Tools
	registry *task.Registry
	config   outbound.Config
	// Secrets are those that there are, grants who may use them: all that no test
	// is about.
	Secrets secret.Provider
	grants  []secret.Grant
}

const password = "correct-horse-battery"

func setup(t testing.TB, adapt ...func(*testBundle)) *testBundle {
	t.Helper()
	b := &testBundle{
		Tools:   types.Tools{Now: time.Now},
		Secrets: secrets{"TOKEN": password}, grants: []secret.Grant{{Tenant: secret.Any, Secret: secret.Any}},
		config: outbound.Config{Guard: outbound.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
	}
	for _, change := range adapt {
		change(b)
	}
	b.config.Now = b.Now
	b.Net = outbound.New(b.config)
	t.Cleanup(b.Net.Close)
	b.Tools.Secrets = secret.NewVault(b.Secrets, b.grants...)
	b.registry = types.Builtin(b.Tools)
	return b
}

// with is what a task is given.
type with = map[string]any

func (b *testBundle) prepare(typ string, w with) (task.Job, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	return b.registry.Prepare(task.Task{Type: typ, With: text})
}

func (b *testBundle) job(t *testing.T, typ string, w with) task.Job {
	t.Helper()
	job, err := b.prepare(typ, w)
	require.NoError(t, err)
	return job
}

// run runs a task; it has a minute.
func (b *testBundle) run(t *testing.T, typ string, w with) (task.Output, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return b.job(t, typ, w).Run(ctx, task.Origin{})
}

func (b *testBundle) succeeds(t *testing.T, typ string, w with) task.Output {
	t.Helper()
	out, err := b.run(t, typ, w)
	require.NoError(t, err)
	requireFields(t, b.registry, typ, out)
	return out
}

// requireFields holds a task that succeeded to the outputs of its type.
func requireFields(t *testing.T, r *task.Registry, typ string, out task.Output) {
	t.Helper()
	is, ok := r.Get(typ)
	require.True(t, ok)
	fields := map[string]task.Field{}
	for _, f := range is.Outputs() {
		fields[f.Name] = f
		require.True(t, !f.Always || out[f.Name] != nil, "%s is always there", f.Name)
	}
	for name, value := range out {
		switch fields[name].Kind {
		case task.Text:
			require.IsType(t, "", value, name)
		case task.Truth:
			require.IsType(t, true, value, name)
		case task.Number:
			require.Contains(t, []string{"int", "int64"}, fmt.Sprintf("%T", value), name)
		default:
			require.Fail(t, "not among the outputs of "+typ, name)
		}
	}
}

// want is how a task is to fail.
type want struct {
	trigger          run.Trigger
	fault, retryable bool
}

// fails runs a task that is to fail, and returns its message.
func (b *testBundle) fails(t *testing.T, typ string, w with, wanted want, says string) string {
	t.Helper()
	_, err := b.run(t, typ, w)
	return requireFailure(t, err, wanted, says)
}

// requireFailure holds an error to how a task is to fail, and returns its message.
func requireFailure(t *testing.T, err error, wanted want, says string) string {
	t.Helper()
	var f *task.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, wanted, want{f.Trigger, f.Fault, f.Retryable}, f.Message)
	require.Contains(t, f.Message, says)
	require.NotContains(t, f.Message, password)
	require.Less(t, len(f.Message), 1000)
	return f.Message
}

// The ways to fail.
func unwell() want     { return want{run.TriggerDependencyUnavailable, true, true} }
func unexpected() want { return want{trigger: run.TriggerExitCode} }
func invalid() want    { return want{trigger: run.TriggerInvalid} }
func tooMuch() want    { return want{trigger: run.TriggerLimitExceeded} }
func tooLate() want    { return want{run.TriggerStepTimeout, true, true} }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// speak listens, and lets a function speak to each that connects. It returns
// host:port. What is said wrong shows in what the task makes of it.
func speak(t *testing.T, say func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var talks sync.WaitGroup
	var mu sync.Mutex
	var over bool
	var open []net.Conn
	talks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			if over {
				_ = c.Close()
			}
			mu.Unlock()
			talks.Go(func() {
				say(c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		mu.Lock()
		over = true
		for _, c := range open {
			_ = c.Close() // whoever still waits for the other side has waited long enough
		}
		mu.Unlock()
		talks.Wait()
	})
	return l.Addr().String()
}

// says answers whatever comes with a text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = c.Write([]byte(text))
	}
}

// nobody is an address at which nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
