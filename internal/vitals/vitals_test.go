package vitals_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/store"
	"belay.run/internal/vitals"
)

func TestReports(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	now := time.Now().UTC()
	read := func() []string {
		reports, err := vitals.Read(t.Context(), st, now)
		require.NoError(t, err)
		hosts := []string{}
		for _, r := range reports {
			hosts = append(hosts, r.Host+" "+r.Version)
		}
		return hosts
	}
	require.Empty(t, read())
	write := func(host, version string, at time.Time) {
		require.NoError(t, vitals.Write(t.Context(), st, &vitals.Report{Host: host, Version: version, At: at}))
	}
	write("h2", "v1", now)
	write("h1", "v1", now.Add(-time.Minute))
	write("gone", "v1", now.Add(-vitals.Stale))
	write("h2", "v2", now)
	require.Equal(t, []string{"h1 v1", "h2 v2"}, read(), "the last report of those that live")
	require.NoError(t, vitals.Remove(t.Context(), st, "h2"))
	require.Equal(t, []string{"h1 v1"}, read())

	_, err = st.Put(t.Context(), "workers/h3", strings.NewReader("{"), 0)
	require.NoError(t, err)
	_, err = vitals.Read(t.Context(), st, now)
	require.ErrorContains(t, err, "workers/h3")
}

func TestMachine(t *testing.T) {
	t.Parallel()
	d, err := vitals.DiskAt("store", t.TempDir())
	require.NoError(t, err)
	require.Positive(t, d.Bytes)
	require.LessOrEqual(t, d.Free, d.Bytes)
	require.Positive(t, vitals.OpenFiles())
	_, err = vitals.DiskAt("store", "/nowhere/at/all")
	require.ErrorContains(t, err, "/nowhere/at/all")
}
