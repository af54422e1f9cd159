package activities_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/store"
	"belay.run/internal/task/types"
)

// A task of a batch uses no secret that is not granted to the batch's tenant; the
// others of the batch run.
func TestBatchSecretsAreGranted(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	vault := secret.NewVault(secrets{"MINE": "value-of-mine", "THEIRS": "value-of-theirs"},
		secret.Grant{Tenant: "shop", Secret: "MINE", Host: secret.Nowhere}, secret.Grant{Tenant: "bank", Secret: "THEIRS"})
	registry := types.Builtin(types.Tools{Secrets: vault})
	e, err := executor.New(executor.Config{Registry: registry})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, e.Close(ctx))
	})
	hook := func(name string) string {
		return `{"type":"webhook_verify","with":{"provider":"gitlab","secret":"` + name + `","headers":{"X-Gitlab-Token":"value-of-mine"}}}` + "\n"
	}
	text := hook("MINE") + hook("THEIRS") + `{"type":"http","with":{"url":"http://a.example","secret":"MINE"}}` + "\n" + `{"type":"noop"}`
	folder := batch.NewFolder()
	packed, err := batch.Pack(t.Context(), strings.NewReader(text), st, folder, 10, registry)
	require.NoError(t, err)

	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	b := activities.NewBatches(activities.BatchesConfig{Store: st, Executor: e})
	env.RegisterActivity(b)
	ref := batch.Ref{ID: "shop/default/batch/b", Folder: folder, Tenant: "shop", Project: "default"}
	value, err := env.ExecuteActivity(b.RunChunk, activities.ChunkInput{Chunk: batch.ChunkOf(ref, 0, 10, packed.Total)})
	require.NoError(t, err)
	var tally batch.Tally
	require.NoError(t, value.Get(&tally))
	require.Equal(t, batch.Counts{Succeeded: 2, Failed: 2}, tally.Counts)
	says := map[int]string{}
	for _, f := range tally.Failures {
		require.Equal(t, run.TriggerInvalid, f.Trigger)
		says[f.Line] = f.Message
	}
	require.Contains(t, says[2], "light_secrets would have to hold shop=THEIRS")
	require.Contains(t, says[3], "light_secrets would have to hold shop=MINE@a.example:80")
}
