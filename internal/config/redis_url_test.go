package config_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/internal/redistest"
	"belay.run/internal/testkit/pki"
)

// TestRedisForms holds what the forms of URLs come to.
func TestRedisForms(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, url string) redis.UniversalClient {
		t.Helper()
		c, err := config.NewRedis(url)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	cluster := func(t *testing.T, url string) *redis.ClusterOptions {
		t.Helper()
		c, ok := open(t, url).(*redis.ClusterClient)
		require.True(t, ok, url)
		return c.Options()
	}

	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"redis+cluster://belay:p%40ss@one:7000,two,[::1]:7002?read_timeout=10s",
			"redis://belay:p%40ss@one:7000?addr=two:6379&addr=[::1]:7002&read_timeout=10s",
			"redis+cluster://belay:p%40ss@one:7000?addr=two:6379&addr=[::1]:7002&read_timeout=10s",
			"redis+cluster://belay:p%40ss@one:7000,two:6379,[::1]:7002/0?read_timeout=10s",
		} {
			o := cluster(t, url)
			require.Equal(t, []string{"one:7000", "two:6379", "[::1]:7002"}, o.Addrs, url)
			require.Equal(t, "belay", o.Username)
			require.Equal(t, "p@ss", o.Password)
			require.Equal(t, 10*time.Second, o.ReadTimeout)
			require.Equal(t, 3*time.Second, o.WriteTimeout)
			require.True(t, o.ContextTimeoutEnabled)
			require.Nil(t, o.TLSConfig)
			require.False(t, o.ReadOnly)
		}
	})

	t.Run("ClusterWithTLSChecksEachNodeUnderItsOwnName", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, cluster(t, "rediss+cluster://one,two").TLSConfig.ServerName)
		o := cluster(t, "rediss+cluster://one,two?tls_server_name=redis.internal&skip_verify=true").TLSConfig
		require.Equal(t, "redis.internal", o.ServerName)
		require.True(t, o.InsecureSkipVerify)
	})

	t.Run("OneServerWithTLSIsCheckedUnderItsName", func(t *testing.T) {
		t.Parallel()
		c, ok := open(t, "rediss://redis.example.org/3").(*redis.Client)
		require.True(t, ok)
		require.Equal(t, "redis.example.org", c.Options().TLSConfig.ServerName)
		require.Equal(t, "redis.example.org:6379", c.Options().Addr)
		require.Equal(t, 3, c.Options().DB)
	})

	t.Run("EmptyHostIsThisOne", func(t *testing.T) {
		t.Parallel()
		c, ok := open(t, "redis://:secret@").(*redis.Client)
		require.True(t, ok)
		require.Equal(t, "localhost:6379", c.Options().Addr)
		require.Equal(t, "secret", c.Options().Password)
	})

	t.Run("SocketWithDatabase", func(t *testing.T) {
		t.Parallel()
		c, ok := open(t, "unix://belay:p%40ss@/run/redis.sock?db=2").(*redis.Client)
		require.True(t, ok)
		require.Equal(t, "/run/redis.sock", c.Options().Addr)
		require.Equal(t, "p@ss", c.Options().Password)
		require.Equal(t, 2, c.Options().DB)
	})
}

func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://one,two":                          "several hosts: want redis+cluster:// or redis+sentinel://",
		"redis+cluster://one,two/2":                `redis+cluster://one:6379,two:6379/2: database "2": a Redis Cluster has only database 0`,
		"redis+cluster://one,,two":                 `"" is no host:port`,
		"redis+cluster://one:x":                    `"one:x" is no host:port`,
		"redis+cluster://one?addr=":                `"" is no host:port`,
		"redis+sentinel://one,two":                 "redis+sentinel://one:26379,two:26379: no name of a master: want redis+sentinel://host1:26379,host2:26379/master-name",
		"redis+sentinel://one/m?master_name=n":     "the name of the master stands in the path and in master_name",
		"redis+sentinel://one/m/x":                 `redis+sentinel://one:26379/m/x: invalid database number: "x"`,
		"redis+proxy://one":                        `scheme "redis+proxy": want redis://`,
		"unix+cluster:///x":                        `scheme "unix+cluster"`,
		"redis-sentinel://one":                     `scheme "redis-sentinel": want redis://`,
		"redis+cluster://one?read_only=true":       "read_only: Belay reads from masters only",
		"redis://one?addr=two:1&route_randomly=1":  "route_randomly: Belay reads from masters only",
		"redis+sentinel://one/m?replica_only=true": "replica_only: Belay reads from masters only",
		"redis://one?raed_timeout=3s":              "redis://one:6379: unexpected option: raed_timeout",
		"redis://one?tls_ca_file=/x":               "redis://one:6379: tls_ca_file without TLS: want rediss",
		"rediss://one?tls_ca_file=/no/such/file":   "rediss://one:6379: tls_ca_file: open /no/such/file",
		"rediss://one?tls_cert_file=/x":            "tls_cert_file and tls_key_file belong together",
		"rediss://one?skip_verify=maybe":           `skip_verify: want true or false, not "maybe"`,
		"redis://u:hunter2/x@one":                  "not a URL",
		"redis://u:hunter2?x@one":                  "not a URL",
		"redis://u:hunter2#x@one":                  "not a URL",
		"redis://u:hunter2%@one":                   "not a URL",
		"redis://u:hunter2 x@one":                  "not a URL",
		"hunter2@one":                              "not a URL",
		"redis://u:hunter2@one?x=%zz":              "the part after ? cannot be read",
		"redis+cluster://u:hunter2@one/1":          "redis+cluster://one:6379/1: ",
	} {
		_, err := config.NewRedis(url)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "hunter2", url)
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://u:hunter2@one/2?read_timeout=3s":                                 "redis://one:6379/2",
		"rediss+cluster://u:hunter2@one:1,two:2?skip_verify=true":                 "rediss+cluster://one:1,two:2",
		"redis://u:hunter2@one:1?addr=two:2":                                      "redis+cluster://one:1,two:2",
		"redis+sentinel://u:hunter2@one,two/m/3?sentinel_password=hunter2":        "redis+sentinel://one:26379,two:26379/m/3",
		"redis://u:hunter2@one:26379/3?addr=two:1&master_name=m&password=hunter2": "redis+sentinel://one:26379,two:1/m/3",
		"unix://u:hunter2@/run/redis.sock?db=1":                                   "unix:///run/redis.sock",
		"redis://u:hunter2/@one":                                                  "(a URL that cannot be read)",
	} {
		require.Equal(t, want, config.RedactURL(url))
	}
}

// TestRedisCluster holds that a user of a real Cluster reaches all its masters
// from the address of one.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	for _, s := range c.Masters {
		require.NoError(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "belay", "on", ">p@ss", "~*", "&*", "+@all").Err())
	}
	url := "redis+cluster://belay:p%40ss@" + c.Masters[0].Addr
	rdb, err := config.NewRedis(url)
	require.NoError(t, err)
	defer func() { require.NoError(t, rdb.Close()) }()
	require.NoError(t, config.PingRedis(t.Context(), rdb, url))
	for i := range 100 {
		require.NoError(t, rdb.Set(t.Context(), string(rune('a'+i)), i, 0).Err())
	}
	for _, s := range c.Masters {
		require.Positive(t, s.Client(t).DBSize(t.Context()).Val())
	}

	wrong, err := config.NewRedis("redis+cluster://belay:hunter2@" + c.Masters[0].Addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, wrong.Close()) }()
	err = config.PingRedis(t.Context(), wrong, url)
	require.ErrorContains(t, err, "WRONGPASS")
	require.NotContains(t, err.Error(), "hunter2")
}

// TestRedisSentinel holds that a client follows the master that Sentinel names,
// also when another becomes it.
func TestRedisSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	login := func(server *redistest.Server, user, password string) {
		require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", user, "on", ">"+password, "~*", "&*", "+@all").Err())
	}
	login(s.Master, "belay", "p@ss")
	login(s.Replica, "belay", "p@ss")
	login(s.Sentinel, "watch", "w@tch")
	urls := []string{
		"redis+sentinel://belay:p%40ss@127.0.0.1:1," + s.Sentinel.Addr + "/belay/0?sentinel_username=watch&sentinel_password=w%40tch",
		"redis://watch:w%40tch@" + s.Sentinel.Addr + "/0?master_name=belay&username=belay&password=p%40ss",
	}
	clients := make([]redis.UniversalClient, len(urls))
	for i, url := range urls {
		rdb, err := config.NewRedis(url)
		require.NoError(t, err)
		defer func() { require.NoError(t, rdb.Close()) }()
		require.NoError(t, config.PingRedis(t.Context(), rdb, url))
		require.NoError(t, rdb.Set(t.Context(), "k", i, 0).Err())
		require.Equal(t, "belay", rdb.Do(t.Context(), "ACL", "WHOAMI").Val())
		clients[i] = rdb
	}
	require.EqualValues(t, 1, s.Master.Client(t).Do(t.Context(), "WAIT", 1, 10_000).Val())
	s.Master.Stop(t)
	s.RequirePromoted(t)
	for _, rdb := range clients {
		require.Eventually(t, func() bool { return rdb.Set(t.Context(), "k", "new", 0).Err() == nil },
			20*time.Second, 50*time.Millisecond, "the client does not follow")
	}
	require.Equal(t, "new", s.Replica.Client(t).Get(t.Context(), "k").Val())
}

// TestRedisTLS holds that a server is believed only with a certificate that the
// named CA stands for.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	a, files := pki.NewAuthority(t), pki.Dir(t)
	a.Issue(t, "redis", files)
	cert, key := files.Cert, files.Key
	_, tlsPort, err := net.SplitHostPort(closedPort(t))
	require.NoError(t, err)
	server := redistest.Start(t, "--tls-port", tlsPort, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", files.CA)
	if server.Client(t).ConfigGet(t.Context(), "tls-port").Val()["tls-port"] != tlsPort {
		t.Skip("SKIP: needs a redis-server that was built with TLS")
	}
	host := "rediss://127.0.0.1:" + tlsPort
	ping := func(url string) error {
		rdb, err := config.NewRedis(url)
		require.NoError(t, err)
		defer func() { require.NoError(t, rdb.Close()) }()
		return config.PingRedis(t.Context(), rdb, url)
	}
	client := "&tls_cert_file=" + cert + "&tls_key_file=" + key
	require.NoError(t, ping(host+"?max_retries=-1&tls_ca_file="+files.CA+client))
	require.NoError(t, ping(host+"?max_retries=-1&skip_verify=true"+client))
	require.ErrorContains(t, ping(host+"?max_retries=-1"+client), "certificate")
	require.ErrorContains(t, ping(host+"?max_retries=-1&tls_server_name=other&tls_ca_file="+files.CA+client), "other")
	require.Error(t, ping(host+"?max_retries=-1&tls_ca_file="+files.CA), "no certificate of the client")

	// A user of its own, and a client whose files come right while it runs.
	require.NoError(t, server.Client(t).Do(t.Context(), "ACL", "SETUSER", "belay", "on", ">p@ss", "~belay:*", "&*", "+@all").Err())
	mine := pki.Dir(t)
	for _, scheme := range []string{"rediss", "rediss+cluster"} {
		pki.NewAuthority(t).Issue(t, "belay", mine)
		rdb, err := config.NewRedis(scheme + "://belay:p%40ss@127.0.0.1:" + tlsPort + "?max_retries=-1&tls_ca_file=" + mine.CA + "&tls_cert_file=" + mine.Cert + "&tls_key_file=" + mine.Key)
		require.NoError(t, err)
		defer func() { require.NoError(t, rdb.Close()) }()
		require.ErrorContains(t, rdb.Ping(t.Context()).Err(), "unknown authority", scheme)
		a.Issue(t, "belay", mine)
		if scheme == "rediss" { // the other is no Cluster, and says so once it is believed
			require.NoError(t, rdb.Set(t.Context(), "belay:k", 1, 0).Err())
			require.ErrorContains(t, rdb.Set(t.Context(), "other", 1, 0).Err(), "NOPERM")
			continue
		}
		require.NotContains(t, fmt.Sprint(rdb.Set(t.Context(), "belay:k", 1, 0).Err()), "unknown authority")
	}
}
