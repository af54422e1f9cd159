package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"belay.run/activities"
	"belay.run/dev/e2e"
	"belay.run/internal/batch"
)

// tallied is a target that counts how often each task of a batch reaches it.
type tallied struct {
	*httptest.Server

	mu   sync.Mutex
	hits map[string]int
	keys map[string]string
	odd  []string
}

func newTallied(t *testing.T) *tallied {
	t.Helper()
	c := &tallied{hits: map[string]int{}, keys: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, key := r.URL.Query().Get("n"), r.Header.Get("Idempotency-Key")
		c.mu.Lock()
		c.hits[n]++
		if before, again := c.keys[n]; key == "" || again && before != key {
			c.odd = append(c.odd, fmt.Sprintf("%s: %q after %q", n, key, before))
		}
		c.keys[n] = key
		c.mu.Unlock()
		select { // so that some are under way at any moment
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// tasks is a file of so many tasks that POST to it.
func (c *tallied) tasks(t *testing.T, n int, more string) string {
	t.Helper()
	return tasksFile(t, n, func(i int) string {
		return fmt.Sprintf(`{"id":"nap-%d","type":"http","with":{"url":"%s/?n=%d","body":"{}"}%s}`,
			i, c.URL, i, strings.ReplaceAll(more, "#", fmt.Sprint(i)))
	})
}

// reached checks that all tasks reached the target, at each attempt with the same
// idempotency key, and returns how many requests came beyond one a task. It then
// counts anew.
func (c *tallied) reached(t *testing.T, n int) int {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, n, len(c.hits), "every task reached its target") //nolint:testifylint // it would print thousands
	require.Empty(t, c.odd[:min(len(c.odd), 3)], "a task has one idempotency key")
	all := 0
	for _, times := range c.hits {
		all += times
	}
	clear(c.hits)
	clear(c.keys)
	return all - n
}

// chunks are the chunks of a batch that Temporal has as running.
func (f *following) chunks(t *testing.T, env *e2e.Env) []*workflowpb.PendingActivityInfo {
	t.Helper()
	var all []*workflowpb.PendingActivityInfo
	for part := 1; part <= 2; part++ {
		d, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(), fmt.Sprintf("%s/part/%d", f.id, part), "")
		if err == nil { // it may not have begun
			all = append(all, d.GetPendingActivities()...)
		}
	}
	return all
}

// waits waits until a chunk says that it waits for something.
func (f *following) waits(t *testing.T, env *e2e.Env, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, c := range f.chunks(t, env) {
			var said activities.ChunkProgress
			if p := c.GetHeartbeatDetails().GetPayloads(); len(p) > 0 &&
				converter.GetDefaultDataConverter().FromPayload(p[0], &said) == nil && strings.Contains(said.Waiting, what) {
				return true
			}
		}
		return false
	}, e2e.Patience, 50*time.Millisecond, "no chunk waits for %s", what)
}

// replayBatch replays a batch and some of its parts; with -update it records them.
func replayBatch(t *testing.T, env *e2e.Env, name string, d *batch.Document, parts ...int) {
	t.Helper()
	one(t, env, name, d.ID, d.RunID)
	for _, part := range parts {
		one(t, env, fmt.Sprintf("%s_part_%d", name, part), fmt.Sprintf("%s/part/%d", d.ID, part), "")
	}
}
