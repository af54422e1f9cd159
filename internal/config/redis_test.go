package config_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
)

func TestRedis(t *testing.T) {
	t.Parallel()

	t.Run("NoURLNoRedis", func(t *testing.T) {
		t.Parallel()
		c, err := config.NewRedis("")
		require.NoError(t, err)
		require.Nil(t, c)
	})

	t.Run("AnswersByURLWithUserAndDatabase", func(t *testing.T) {
		t.Parallel()
		server := miniredis.RunT(t)
		server.RequireUserAuth("belay", "p@ss")
		url := "redis://belay:p%40ss@" + server.Addr() + "/2"
		c, err := config.NewRedis(url)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		require.NoError(t, config.PingRedis(t.Context(), c, url))
		require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
		require.True(t, server.DB(2).Exists("k"))
	})

	t.Run("UnreachableNamesTheAddressAndNotThePassword", func(t *testing.T) {
		t.Parallel()
		address := closedPort(t)
		url := "redis://belay:hunter2@" + address + "/0?max_retries=-1"
		c, err := config.NewRedis(url)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		err = config.PingRedis(t.Context(), c, url)
		var unreachable *config.UnreachableError
		require.ErrorAs(t, err, &unreachable)
		require.Equal(t, "Redis", unreachable.Service)
		require.ErrorContains(t, err, address)
		require.ErrorContains(t, err, "REDIS_URL")
		require.NotContains(t, err.Error(), "hunter2")
	})

	t.Run("TimeoutsAreBoundedAndMayBeGiven", func(t *testing.T) {
		t.Parallel()
		options := func(url string) *redis.Options {
			c, err := config.NewRedis(url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			single, ok := c.(*redis.Client)
			require.True(t, ok)
			return single.Options()
		}
		o := options("redis://redis:6379")
		require.Equal(t, 3*time.Second, o.ReadTimeout)
		require.Equal(t, 3*time.Second, o.WriteTimeout)
		require.Equal(t, 3*time.Second, o.DialTimeout)
		require.True(t, o.ContextTimeoutEnabled)
		require.Nil(t, o.TLSConfig)
		require.Equal(t, 10*time.Second, options("redis://redis:6379?read_timeout=10s").ReadTimeout)
		require.NotNil(t, options("rediss://redis:6379").TLSConfig)
		require.Equal(t, "/run/redis.sock", options("unix:///run/redis.sock").Addr)
	})
}
