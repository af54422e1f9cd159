package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// A task that names a secret which its tenant may not use is refused at once.
func TestSecretsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, options{
		config: Config{Tokens: tokens(t)},
		grants: []secret.Grant{{Tenant: "shop", Secret: "MINE"}, {Tenant: "bank", Secret: secret.Any}},
	})
	ask := func(token, text string) answer { return b.task(t, text, "Authorization", "Bearer "+token) }
	for _, text := range []string{
		`{"type":"http","with":{"url":"http://127.0.0.1:1","secret":"THEIRS"}}`,
		`{"type":"http","with":{"url":"http://127.0.0.1:1","s\u0065cret":"THEIRS"}}`,
		`{"type":"http","with":{"url":"http://127.0.0.1:1","secret":"THEIRS"},"tenant":"bank"}`,
		`{"type":"secret_check","with":{"kind":"jwt","secret":"MINE","key":"THEIRS"}}`,
		`{"type":"webhook_verify","with":{"provider":"github","secret":"THEIRS","headers":{"A":"b"}}}`,
		`{"type":"config_sync","with":{"source":"http://127.0.0.1:1","target":"/x","source_secret":"THEIRS"}}`,
		`{"type":"config_sync","with":{"source":"/x","target":"redis://127.0.0.1:1","key":"k","target_secret":"THEIRS"}}`,
	} {
		p := problem(t, ask(shopToken, text), http.StatusForbidden, "secret_refused")
		require.Contains(t, p.Detail, "light_secrets")
		require.Contains(t, p.Detail, "shop=THEIRS")
	}
	problem(t, ask(shopToken, `{"type":"http","with":{"url":"http://127.0.0.1:1","secret":"../x"}}`), http.StatusBadRequest, "invalid_task")
	problem(t, ask(shopToken, `{"type":"http","with":{"secret":"THEIRS","kind":1}}`), http.StatusForbidden, "secret_refused")

	// What is granted runs, and fails for lack of a target.
	for token, text := range map[string]string{
		shopToken: `{"type":"health_check","with":{"url":"http://127.0.0.1:1","secret":"MINE"}}`,
		opsToken:  `{"type":"health_check","with":{"url":"http://127.0.0.1:1","secret":"THEIRS"},"tenant":"bank"}`,
	} {
		a := ask(token, text)
		require.Equal(t, http.StatusOK, a.StatusCode, a.text)
		require.Equal(t, task.Failed, decode[task.Result](t, a).Status)
	}
}

// A batch of which a line names such a secret does not start.
func TestABatchWithSecretsOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, options{grants: []secret.Grant{{Tenant: "shop", Secret: "MINE"}}})
	mine := `{"type":"http","with":{"url":"http://127.0.0.1:1","secret":"MINE"}}` + "\n"
	theirs := `{"type":"http","with":{"url":"http://127.0.0.1:1","secret":"THEIRS"}}` + "\n"
	require.Equal(t, http.StatusAccepted, b.batch(t, "?tenant=shop", strings.NewReader(mine)).StatusCode)
	p := problem(t, b.batch(t, "?tenant=shop", strings.NewReader(mine+theirs)), http.StatusBadRequest, "invalid_batch")
	require.Equal(t, 1, p.Count)
	require.Equal(t, 2, p.Errors[0].Line)
	require.Contains(t, p.Errors[0].Message, "shop=THEIRS")
	problem(t, b.batch(t, "", strings.NewReader(mine)), http.StatusBadRequest, "invalid_batch")
	require.Len(t, b.batches.started(), 1)
	require.Len(t, b.stored(t), 1)
}
