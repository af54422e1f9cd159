package container_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/internal/container"
	"belay.run/internal/testkit/engine"
)

func service(name, script string, edit ...func(*container.Service)) container.Service {
	s := container.Service{
		Name: name, Image: container.Image{Name: engine.Image, Pull: container.PullNever},
		Command: []string{"/bin/sh", "-c", script},
		Health:  container.Health{Interval: 200 * time.Millisecond, Timeout: patience},
	}
	for _, f := range edit {
		f(&s)
	}
	return s
}

// greeter answers hello on a port.
const greeter = "exec nc -ll -p 5432 -e echo hello"

func listens(s *container.Service) {
	s.Ports, s.Health.Command = []int{5432}, "netstat -ltn | grep -q :5432"
}

func TestServices(t *testing.T) {
	t.Parallel()

	t.Run("AreReachedByNameAndByAPortOfThisMachine", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		got, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", greeter, listens), service("idle", "sleep 600")})
		require.NoError(t, err)
		require.Equal(t, "db", got[0].Name)
		require.Equal(t, []int{5432}, got[0].Ports)
		require.Len(t, got[0].Published, 1)
		require.Empty(t, got[1].Ports)

		r, code, _ := k.run(t, k.job(t, "build/s", "nc db 5432 </dev/null", func(j *container.Job) { j.Network = k.Network(k.runKey, "build") }))
		require.Zero(t, code, r.err.String())
		require.Equal(t, "hello\n", r.out.String())

		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", got[0].Published[0]))
		require.NoError(t, err)
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.Equal(t, "hello\n", string(said))

		require.NoError(t, k.RemoveServices(t.Context(), k.runKey, "build"))
		require.NoError(t, k.RemoveServices(t.Context(), k.runKey, "build"), "again")
		require.Empty(t, k.left(t))
	})

	t.Run("AreBegunAnewByASecondTry", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		for range 2 {
			_, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", greeter, listens)})
			require.NoError(t, err)
		}
		require.Len(t, k.left(t), 2, "a service and a network")
	})

	t.Run("ThatEndFailWithWhatTheyWrote", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		_, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", "echo no disk >&2; exit 4", listens)})
		var notReady *container.NotReadyError
		require.ErrorAs(t, err, &notReady)
		require.Equal(t, "it ended with exit code 4", notReady.Why)
		require.Equal(t, "no disk", notReady.Output)
	})

	t.Run("ThatDoNotGetReadyInTimeFail", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		_, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", "sleep 600", listens, func(s *container.Service) {
			s.Health.Timeout = time.Second
		})})
		var notReady *container.NotReadyError
		require.ErrorAs(t, err, &notReady)
	})

	t.Run("KeepTheirLimits", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		_, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{
			service("db", "nc -l -p 5432; exec tail /dev/zero", listens, func(s *container.Service) {
				s.Limits = container.Limits{CPUs: 0.5, Memory: 32 << 20, PIDs: 50}
			}),
		})
		require.NoError(t, err)
		_, ended, err := k.ServiceEnd(t.Context(), k.runKey, "build", "db")
		require.NoError(t, err)
		require.False(t, ended)
		list, err := k.engine.ContainerList(t.Context(), client.ContainerListOptions{Filters: make(client.Filters).Add("label", "belay.run/run="+k.runKey)})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		got, err := k.engine.ContainerInspect(t.Context(), list.Items[0].ID, client.ContainerInspectOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 32<<20, got.Container.HostConfig.Memory)
		require.EqualValues(t, 500_000_000, got.Container.HostConfig.NanoCPUs)
		require.EqualValues(t, 50, *got.Container.HostConfig.PidsLimit)

		_, code, _ := k.run(t, k.job(t, "build/s", "nc db 5432 </dev/null", func(j *container.Job) { j.Network = k.Network(k.runKey, "build") }))
		require.Zero(t, code)
		var end container.ServiceEnd
		await(t, "it has ended", func() bool {
			end, ended, err = k.ServiceEnd(t.Context(), k.runKey, "build", "db")
			return err == nil && ended
		})
		require.Equal(t, "the service db ended with exit code 137, killed as it went over its limit of memory", end.String())
		require.False(t, end.Well())
	})

	t.Run("StartAlsoWhereTheEngineHasNoInit", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		h, err := container.New(container.Options{Address: withoutInit(t, k), HostID: k.hostID})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		_, err = h.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", greeter, listens)})
		require.NoError(t, err)
		require.Len(t, k.left(t), 2, "a service and a network")
	})

	t.Run("WithoutAnEngineAreUnavailable", func(t *testing.T) {
		t.Parallel()
		h, err := container.New(container.Options{Address: "unix:///no/such.sock", HostID: "h"})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		_, err = h.StartServices(t.Context(), container.Owner{RunKey: "k", Stage: "build"}, nil)
		require.ErrorIs(t, err, container.ErrUnavailable)
	})
}

// withoutInit is an engine that has no init program, and says so as Docker does:
// not before a container that wants one is started.
func withoutInit(t *testing.T, k *kit) (address string) {
	t.Helper()
	socket := strings.TrimPrefix(k.engine.Address, "unix://")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
		},
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, start := strings.CutSuffix(r.URL.Path, "/start"); start {
			got, err := k.engine.ContainerInspect(r.Context(), path.Base(id), client.ContainerInspectOptions{})
			if err == nil && got.Container.HostConfig.Init != nil && *got.Container.HostConfig.Init {
				http.Error(w, `{"message": "exec: \"docker-init\": executable file not found in $PATH"}`, http.StatusInternalServerError)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + l.Addr().String()
}

func TestSweep(t *testing.T) {
	t.Parallel()
	k := setup(t)
	_, err := k.StartServices(t.Context(), k.owner("build"), []container.Service{service("db", "sleep 600")})
	require.NoError(t, err)
	job := k.job(t, "build/s", "echo ready; sleep 600")
	r := k.start(t, job)
	await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
	require.NoError(t, r.cmd.Process.Kill())
	_, _ = r.wait()

	// What an attempt holds, a stage needs, or another host has, stays.
	done := k.Use(job.Name)
	n, err := k.Sweep(t.Context(), ended(t, false, nil))
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = setup(t).Sweep(t.Context(), ended(t, true, nil))
	require.NoError(t, err)
	require.Zero(t, n)

	// So does what nobody knows of whether it is needed.
	broken := errors.New("Temporal is away")
	_, err = k.Sweep(t.Context(), ended(t, true, broken))
	require.ErrorIs(t, err, broken)
	require.Len(t, k.left(t), 3)

	// The container that no attempt holds goes, the services with the stage.
	done()
	n, err = k.Sweep(t.Context(), ended(t, false, nil))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.False(t, k.exists(t, job.Name))
	n, err = k.Sweep(t.Context(), ended(t, true, nil))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, k.left(t))
}

// ended answers a sweep's question about any stage.
func ended(t *testing.T, is bool, err error) func(context.Context, container.Owner) (bool, error) {
	t.Helper()
	return func(_ context.Context, o container.Owner) (bool, error) {
		require.Equal(t, "w-build", o.WorkflowID)
		return is, err
	}
}

func TestRemoveNode(t *testing.T) {
	t.Parallel()
	k := setup(t)
	names := map[string]string{}
	for _, node := range []string{"build/s", "build/s2", "other/s"} {
		job := k.job(t, node, "echo ready; sleep 600")
		names[node] = job.Name
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, r.cmd.Process.Kill())
		_, _ = r.wait()
	}
	require.NoError(t, k.RemoveNode(t.Context(), k.runKey, "build/s"))
	require.False(t, k.exists(t, names["build/s"]))
	require.True(t, k.exists(t, names["build/s2"]))
	require.NoError(t, k.RemoveNode(t.Context(), k.runKey, "build"))
	require.False(t, k.exists(t, names["build/s2"]))
	require.True(t, k.exists(t, names["other/s"]))
}
