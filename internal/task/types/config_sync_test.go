package types_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/redistest"
	"belay.run/internal/task"
)

const configSync = "config_sync"

// versions is a server that keeps one document, with or without an ETag.
type versions struct {
	mu      sync.Mutex
	content string
	etag    string
	gone    bool
	// asked are the requests, sent what was put.
	asked []string
	last  http.Header
}

func (v *versions) set(content, etag string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.content, v.etag, v.gone, v.asked = content, etag, false, nil
}

func (v *versions) requests() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.asked, " ")
}

func (v *versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = r.Header
	match := r.Header.Get("If-None-Match")
	switch {
	case r.Method == http.MethodPut && r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != v.etag:
		v.asked = append(v.asked, "PUT=412")
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodPut:
		body, _ := io.ReadAll(r.Body)
		v.content, v.gone = string(body), false
		v.asked = append(v.asked, "PUT")
	case v.gone:
		v.asked = append(v.asked, "404")
		w.WriteHeader(http.StatusNotFound)
	case v.etag != "" && match == v.etag:
		v.asked = append(v.asked, "304")
		w.WriteHeader(http.StatusNotModified)
	default:
		v.asked = append(v.asked, "200")
		if v.etag != "" {
			w.Header().Set("ETag", v.etag)
		}
		_, _ = io.WriteString(w, v.content)
	}
}

// configBundle has a folder for files, and a source.
func configBundle(t *testing.T) (b *testBundle, from *versions, url, folder string) {
	t.Helper()
	folder = t.TempDir()
	b = setup(t, func(b *testBundle) { b.Files = folder })
	from = &versions{content: "one"}
	return b, from, serve(t, from.ServeHTTP), folder
}

func requireFile(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
}

func TestConfigToFileByHash(t *testing.T) {
	t.Parallel()
	b, from, url, folder := configBundle(t)
	path := filepath.Join(folder, "app.conf")
	w := with{"source": url, "target": path, "mode": "0640"}
	out := b.succeeds(t, configSync, w)
	require.Equal(t, task.Output{
		"changed": true, "not_modified": false, "bytes": 3, "sha256": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
	}, out)
	requireFile(t, path, "one")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())

	require.NoError(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	require.Equal(t, false, b.succeeds(t, configSync, w)["changed"])
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, time.Unix(1, 0), info.ModTime(), "it is not written where it is the same")

	require.NoError(t, os.Chmod(path, 0o600))
	from.set("two", "")
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "a file keeps its mode")
	requireFile(t, path, "two")
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing is left beside it")
}

func TestConfigToFileByETag(t *testing.T) {
	t.Parallel()
	b, from, url, folder := configBundle(t)
	path := filepath.Join(folder, "app.conf")
	w := with{"source": url, "target": path}
	from.set("one", `"v1"`)
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, "200", from.requests())
	out := b.succeeds(t, configSync, w)
	require.Equal(t, true, out["not_modified"])
	require.Equal(t, "200 304", from.requests())

	// Somebody else's change is put right, though the source is as it was.
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, "200 304 200", from.requests())
	requireFile(t, path, "one")

	// What was seen at one source says nothing of another.
	other := serve(t, (&versions{content: "other", etag: `"v1"`}).ServeHTTP)
	require.Equal(t, true, b.succeeds(t, configSync, with{"source": other, "target": path})["changed"])
	requireFile(t, path, "other")

	// A note that cannot be read is none.
	require.NoError(t, os.WriteFile(filepath.Join(folder, ".app.conf.belay-seen"), []byte("{"), 0o600))
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	requireFile(t, path, "one")
	from.set("one", `"v2"`)
	require.Equal(t, false, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, true, b.succeeds(t, configSync, w)["not_modified"])
	require.NoError(t, os.Remove(path))
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	requireFile(t, path, "one")
}

func TestConfigOfASourceThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	b, from, url, folder := configBundle(t)
	path := filepath.Join(folder, "app.conf")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	from.gone = true
	b.fails(t, configSync, with{"source": url, "target": path}, unexpected(), "answered 404 Not Found, expected 200")
	half := "http://" + speak(t, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
	b.fails(t, configSync, with{"source": half, "target": path}, unwell(), "after 4 bytes")
	part := "http://" + speak(t, says("HTTP/1.1 206 Partial Content\r\nContent-Length: 4\r\n\r\nhalf"))
	b.fails(t, configSync, with{"source": part, "target": path}, unexpected(), "answered 206")
	from.set("12345678", "")
	b.fails(t, configSync, with{"source": url, "target": path, "max_bytes": 7}, tooMuch(), "larger than 7 bytes")
	b.fails(t, configSync, with{"source": filepath.Join(folder, "none"), "target": path}, unexpected(), "no such file")
	requireFile(t, path, "old")
}

func TestConfigFilesStayInTheirFolder(t *testing.T) {
	t.Parallel()
	b, _, url, folder := configBundle(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "shadow"), []byte("root"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(outside, "shadow"), filepath.Join(folder, "file-link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "folder-link")))
	for _, path := range []string{
		filepath.Join(outside, "new"), filepath.Join(folder, "..", filepath.Base(outside), "new"),
		filepath.Join(folder, "folder-link", "new"), filepath.Join(folder, "file-link"),
	} {
		b.fails(t, configSync, with{"source": url, "target": path}, invalid(), "lies outside of")
		b.fails(t, configSync, with{"source": path, "target": filepath.Join(folder, "x")}, invalid(), "lies outside of")
	}
	requireFile(t, filepath.Join(outside, "shadow"), "root")
	b.fails(t, configSync, with{"source": url, "target": filepath.Join(folder, "none", "x")}, invalid(), "no such file")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "dir"), 0o700))
	b.fails(t, configSync, with{"source": url, "target": filepath.Join(folder, "dir")}, unexpected(), "no regular file")
	none := setup(t)
	none.fails(t, configSync, with{"source": url, "target": filepath.Join(folder, "x")}, invalid(), "lets no task touch files")

	// A link within the folder stays, and what it leads to changes.
	require.NoError(t, os.WriteFile(filepath.Join(folder, "real"), nil, 0o600))
	require.NoError(t, os.Symlink("real", filepath.Join(folder, "link")))
	b.succeeds(t, configSync, with{"source": url, "target": filepath.Join(folder, "link")})
	requireFile(t, filepath.Join(folder, "real"), "one")
	led, err := os.Readlink(filepath.Join(folder, "link"))
	require.NoError(t, err)
	require.Equal(t, "real", led)
}

// TestConfigFileIsWholeForWhoeverReadsIt reads a file while it is replaced.
func TestConfigFileIsWholeForWhoeverReadsIt(t *testing.T) {
	t.Parallel()
	b, _, _, folder := configBundle(t)
	one, two := strings.Repeat("1", 256<<10), strings.Repeat("2", 256<<10)
	source, path := filepath.Join(folder, "source"), filepath.Join(folder, "app.conf")
	require.NoError(t, os.WriteFile(path, []byte(one), 0o600))
	stop := make(chan struct{})
	torn := make(chan int, 1)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				torn <- n
				return
			default:
			}
			text, err := os.ReadFile(path)
			if err != nil || string(text) != one && string(text) != two {
				n++
			}
		}
	}()
	for range 10 {
		for _, text := range []string{two, one} {
			require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
			require.Equal(t, true, b.succeeds(t, configSync, with{"source": source, "target": path})["changed"])
		}
	}
	close(stop)
	require.Zero(t, <-torn)
}

func TestConfigToRedis(t *testing.T) {
	t.Parallel()
	b, from, url, _ := configBundle(t)
	server := redistest.Start(t)
	rdb := server.Client(t)
	w := with{"source": url, "target": "redis://" + server.Addr + "/0", "key": "app:config"}
	from.set("one", `"v1"`)
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, "one", rdb.Get(t.Context(), "app:config").Val())
	require.Equal(t, true, b.succeeds(t, configSync, w)["not_modified"])
	require.NoError(t, rdb.Set(t.Context(), "app:config", "mine", time.Hour).Err())
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Positive(t, rdb.TTL(t.Context(), "app:config").Val(), "an expiry stays")
	from.set("", "")
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, false, b.succeeds(t, configSync, w)["changed"], "an empty one is not one that is missing")
	require.NoError(t, rdb.Del(t.Context(), "app:config").Err())
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])

	require.NoError(t, rdb.RPush(t.Context(), "list", "a").Err())
	b.fails(t, configSync, with{"source": url, "target": w["target"], "key": "list"}, unexpected(), "WRONGTYPE")
	require.NoError(t, rdb.ConfigSet(t.Context(), "requirepass", password).Err())
	b.fails(t, configSync, w, unexpected(), "NOAUTH")
	w["target_secret"] = "TOKEN"
	b.succeeds(t, configSync, w)
	// The source is the task's target: of Redis nothing is held against it.
	w["target"] = "redis://" + nobody(t)
	b.fails(t, configSync, w, want{unwell().trigger, false, true}, "connection refused")
}

func TestConfigToRedisEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b, _, url, _ := configBundle(t)
	server := redistest.Start(t)
	server.Pause(t)
	defer server.Resume(t)
	job := b.job(t, configSync, with{"source": url, "target": "redis://" + server.Addr, "key": "k"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := job.Run(ctx, task.Origin{})
	requireFailure(t, err, want{tooLate().trigger, false, true}, "in time")
}

func TestConfigToHTTP(t *testing.T) {
	t.Parallel()
	b, from, url, _ := configBundle(t)
	to := &versions{gone: true}
	w := with{"source": url, "target": serve(t, to.ServeHTTP), "target_secret": "TOKEN"}
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, "404 PUT", to.requests())
	require.Equal(t, "one", to.content)
	require.Equal(t, "Bearer "+password, to.last.Get("Authorization"))
	require.Empty(t, from.last.Get("Authorization"), "the target's secret is not for the source")
	require.Equal(t, false, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, "404 PUT 200", to.requests())

	to.set("mine", `"t1"`)
	require.Equal(t, true, b.succeeds(t, configSync, w)["changed"])
	require.Equal(t, `"t1"`, to.last.Get("If-Match"))
}

func TestConfigToHTTPHeedsTheChangeOfAnother(t *testing.T) {
	t.Parallel()
	b, _, url, _ := configBundle(t)
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(map[bool]int{true: http.StatusPreconditionFailed, false: http.StatusOK}[r.Header.Get("If-Match") == `"t1"`])
			return
		}
		w.Header().Set("ETag", `"t1"`)
	})
	b.fails(t, configSync, with{"source": url, "target": target}, want{unexpected().trigger, false, true}, "somebody else changed it meanwhile")
	moved := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	})
	b.fails(t, configSync, with{"source": url, "target": moved}, unexpected(), "answered 302 Found, expected 2xx")
}
