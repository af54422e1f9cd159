package types_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const statusSync = "status_sync"

func TestStatusSync(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body map[string]string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, body = r, nil
		text, _ := io.ReadAll(r.Body)
		if json.Unmarshal(text, &body) == nil {
			w.WriteHeader(http.StatusCreated)
		}
	})
	b := setup(t)
	const commit = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
	w := with{
		"provider": "github", "api": url + "/api/v3/", "repository": "ada/shop", "commit": commit, "state": "running",
		"context": "ci/build", "description": strings.Repeat("ä", 200), "target_url": "https://ci.example/1", "secret": "TOKEN",
	}
	require.Equal(t, "pending", b.succeeds(t, statusSync, w)["state"])
	require.Equal(t, "POST /api/v3/repos/ada/shop/statuses/"+commit, got.Method+" "+got.RequestURI)
	require.Equal(t, "Bearer "+password, got.Header.Get("Authorization"))
	require.Equal(t, map[string]string{
		"state": "pending", "context": "ci/build", "description": strings.Repeat("ä", 139) + "…", "target_url": "https://ci.example/1",
	}, body)

	w["provider"], w["repository"], w["state"], w["api"] = "gitlab", "group/sub/shop", "cancelled", url
	require.Equal(t, "canceled", b.succeeds(t, statusSync, w)["state"])
	require.Equal(t, "/projects/group%2Fsub%2Fshop/statuses/"+commit, got.RequestURI)
	require.Equal(t, "ci/build", body["name"])

	w = with{"provider": "http", "url": url + "/hook", "commit": "6dcb09b", "state": "failure"}
	require.Equal(t, "failure", b.succeeds(t, statusSync, w)["state"])
	require.Equal(t, map[string]string{"state": "failure", "commit": "6dcb09b", "context": "belay", "description": "", "target_url": ""}, body)
}

func TestStatusSyncGoesToTheForges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for provider, target := range map[string]string{"github": "api.github.com:443", "gitlab": "gitlab.com:443"} {
		job := b.job(t, statusSync, with{"provider": provider, "repository": "a/b", "commit": "6dcb09b", "state": "success"})
		require.Equal(t, target, job.Target())
	}
}

func TestStatusSyncTwiceIsNoMistake(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"message":"Cannot transition status via :run from :running (Reason(s): Status cannot transition via \"run\")"}`)
	})
	b := setup(t)
	w := with{"provider": "gitlab", "api": url, "repository": "7", "commit": "6dcb09b", "state": "running"}
	b.succeeds(t, statusSync, w)
	w["state"] = "pending"
	b.fails(t, statusSync, w, unexpected(), "answered 400")
}
