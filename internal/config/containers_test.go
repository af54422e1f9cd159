package config_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
)

func TestContainerSettings(t *testing.T) {
	t.Parallel()
	load := func(t *testing.T, env map[string]string, args ...string) (*config.Config, error) {
		t.Helper()
		return config.Load(append(args, "--state-dir", t.TempDir()), func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		})
	}

	c, err := load(t, map[string]string{"DOCKER_HOST": "unix:///run/mine.sock", "HOME": "/home/me"}, "--container-mounts", "/srv/a/, /srv/b")
	require.NoError(t, err)
	require.Equal(t, "unix:///run/mine.sock", c.ContainerEngine)
	require.Equal(t, []string{"/srv/a", "/srv/b"}, c.ContainerMounts)
	require.Equal(t, "/home/me/.docker/config.json", c.RegistryConfig)
	require.False(t, c.ContainerPrivileged)

	c, err = load(t, map[string]string{"DOCKER_HOST": "unix:///run/mine.sock", "DOCKER_CONFIG": "/etc/logins"},
		"--container-engine", "unix:///run/other.sock", "--container-privileged", "true")
	require.NoError(t, err)
	require.Equal(t, "unix:///run/other.sock", c.ContainerEngine)
	require.Equal(t, "/etc/logins/config.json", c.RegistryConfig)
	require.True(t, c.ContainerPrivileged)

	c, err = load(t, map[string]string{"DOCKER_HOST": "unix:///run/mine.sock"}, "--container-engine", "off")
	require.NoError(t, err)
	require.Equal(t, config.ContainerEngineOff, c.ContainerEngine)

	for _, bad := range [][]string{
		{"--container-engine", "tcp://10.0.0.1:2375"},
		{"--container-engine", "/run/docker.sock"},
		{"--container-mounts", "srv"},
		{"--container-privileged", "yes"},
	} {
		_, err := load(t, nil, bad...)
		require.ErrorContains(t, err, bad[1], bad)
	}
}

func TestContainerEngineIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lookup := func(name string) (string, bool) {
		if name == "XDG_RUNTIME_DIR" {
			return dir, true
		}
		return "", false
	}
	before, err := config.Load([]string{"--state-dir", dir}, lookup)
	require.NoError(t, err)
	if before.ContainerEngine != config.ContainerEngineOff {
		return // this machine has one at a place that comes before
	}
	socket := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	after, err := config.Load([]string{"--state-dir", dir}, lookup)
	require.NoError(t, err)
	require.Equal(t, "unix://"+socket, after.ContainerEngine)
}
