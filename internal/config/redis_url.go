package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

// redisKind is how the servers behind a URL belong together.
type redisKind int

const (
	redisSingle redisKind = iota
	redisCluster
	redisSentinel
)

// redisTarget is a URL of Redis, taken apart. The forms that name several hosts are
// no URLs to net/url, and go-redis spells them in its own way:
//
//	redis+cluster://user:password@host1:6379,host2:6379
//	redis://user:password@host1:6379?addr=host2:6379                      go-redis
//	redis+sentinel://user:password@host1:26379,host2:26379/master-name/db
//	redis://host1:26379/db?addr=host2:26379&master_name=master-name       go-redis
type redisTarget struct {
	kind   redisKind
	secure bool
	unix   bool
	// user may be nil, hosts are host:port.
	user  *url.Userinfo
	hosts []string
	path  string
	query url.Values
	tls   redisTLS
}

// replicaOptions are options of go-redis by which reads go to replicas, which
// may be behind their master.
func replicaOptions() []string {
	return []string{
		"read_only", "replica_only", "route_by_latency", "route_by_latency_tolerance", "route_randomly", "use_disconnected_replicas",
	}
}

// readRedisURL reads a URL. Errors never show it: it may hold a password.
func readRedisURL(rawURL string) (*redisTarget, error) {
	scheme, authority, path, query, ok := cutURL(rawURL)
	if !ok {
		return nil, errors.New("not a URL: want redis://[user:password@]host:port/db, with the password percent-encoded")
	}
	u := &redisTarget{path: strings.Trim(path, "/")}
	base, kind, several := strings.Cut(scheme, "+")
	u.secure, u.unix = base == "rediss", base == "unix"
	switch {
	case several && kind == "cluster" && !u.unix:
		u.kind = redisCluster
	case several && kind == "sentinel" && !u.unix:
		u.kind = redisSentinel
	case several:
		base = ""
	}
	if base != "redis" && base != "rediss" && base != "unix" {
		return nil, fmt.Errorf("scheme %q: want redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://", scheme)
	}
	var err error
	if u.query, err = url.ParseQuery(query); err != nil {
		return nil, errors.New("the part after ? cannot be read: want name=value&name=value, percent-encoded")
	}
	list := authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		login, err := url.Parse("redis://" + authority[:i+1] + "host")
		if err != nil {
			return nil, errors.New("not a URL: the user or the password cannot be read: they have to be percent-encoded")
		}
		u.user, list = login.User, authority[i+1:]
	}
	if u.unix {
		u.path = path
		return u, nil
	}
	return u, u.readHosts(list, several)
}

// cutURL cuts a URL apart without looking at the parts.
func cutURL(rawURL string) (scheme, authority, path, query string, ok bool) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(rawURL, " \t\r\n") {
		return "", "", "", "", false
	}
	authority = rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	if strings.Contains(rest, "@") {
		return "", "", "", "", false // a password with a / or ? in it, of which messages would show a part
	}
	rest, _, _ = strings.Cut(rest, "#")
	path, query, _ = strings.Cut(rest, "?")
	return strings.ToLower(scheme), authority, path, query, true
}

// readHosts reads the hosts and settles the kind of a URL in the forms of
// go-redis. Several says that the scheme names the kind.
func (u *redisTarget) readHosts(list string, several bool) error {
	port := "6379"
	if u.query.Get("master_name") != "" {
		u.kind = redisSentinel
	}
	if u.kind == redisSentinel {
		port = "26379"
	} else if u.query.Has("addr") {
		u.kind = redisCluster
	}
	names := append(strings.Split(list, ","), u.query["addr"]...)
	for _, name := range names {
		host, err := hostPort(name, port, u.kind == redisSingle || len(names) == 1)
		if err != nil {
			return err
		}
		u.hosts = append(u.hosts, host)
	}
	if u.kind == redisSingle && len(u.hosts) > 1 {
		return errors.New("several hosts: want redis+cluster:// or redis+sentinel:// before them")
	}
	u.query.Del("addr")
	for _, name := range replicaOptions() {
		if u.query.Has(name) {
			return fmt.Errorf("%s: Belay reads from masters only, a replica may be behind", name)
		}
	}
	if u.kind == redisSentinel && several {
		if err := u.readMaster(); err != nil {
			return err
		}
	}
	u.tls = takeTLS(u.query)
	return nil
}

// hostPort adds what is missing.
func hostPort(name, port string, mayBeEmpty bool) (string, error) {
	if name == "" && mayBeEmpty {
		name = "localhost"
	}
	u, err := url.Parse("redis://" + name)
	if err != nil || u.Hostname() == "" || u.Path != "" || u.User != nil {
		return "", fmt.Errorf("%q is no host:port", name)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// readMaster reads /master-name/db, and hands user and password to the master:
// those of the Sentinels are options.
func (u *redisTarget) readMaster() error {
	name, db, _ := strings.Cut(u.path, "/")
	if name != "" {
		if u.query.Has("master_name") {
			return errors.New("the name of the master stands in the path and in master_name")
		}
		decoded, err := url.PathUnescape(name)
		if err != nil {
			return errors.New("the name of the master cannot be read: percent-encode it")
		}
		u.query.Set("master_name", decoded)
	}
	u.path = db
	if u.user != nil {
		u.query.Set("username", u.user.Username())
		if password, ok := u.user.Password(); ok {
			u.query.Set("password", password)
		}
		u.user = nil
	}
	if u.query.Has("sentinel_username") || u.query.Has("sentinel_password") {
		u.user = url.UserPassword(u.query.Get("sentinel_username"), u.query.Get("sentinel_password"))
		u.query.Del("sentinel_username")
		u.query.Del("sentinel_password")
	}
	return nil
}

// plain is the URL in the form that go-redis reads.
func (u *redisTarget) plain() string {
	user := ""
	if u.user != nil {
		user = u.user.String() + "@"
	}
	query := maps.Clone(u.query)
	if u.unix {
		return "unix://" + user + u.path + "?" + query.Encode()
	}
	if len(u.hosts) > 1 {
		query["addr"] = slices.Clone(u.hosts[1:])
	}
	return "redis://" + user + u.hosts[0] + "/" + u.path + "?" + query.Encode()
}

// host is the name of the first host.
func (u *redisTarget) host() string {
	if len(u.hosts) == 0 {
		return ""
	}
	host, _, err := net.SplitHostPort(u.hosts[0])
	if err != nil {
		return u.hosts[0]
	}
	return host
}

// shown is the URL without what is secret.
func (u *redisTarget) shown() string {
	if u.unix {
		return "unix://" + u.path
	}
	scheme := "redis"
	if u.secure {
		scheme = "rediss"
	}
	switch u.kind {
	case redisCluster:
		scheme += "+cluster"
	case redisSentinel:
		scheme += "+sentinel"
	case redisSingle:
	}
	parts := []string{scheme + "://" + strings.Join(u.hosts, ",")}
	for _, part := range []string{u.masterName(), u.path} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

func (u *redisTarget) masterName() string {
	if u.kind == redisSentinel {
		return url.PathEscape(u.query.Get("master_name"))
	}
	return ""
}

func (u *redisTarget) wrong(err error) error {
	return fmt.Errorf("%s: %w", u.shown(), trimmed{err})
}

// trimmed is an error of go-redis without the name of its package.
type trimmed struct{ error }

// Error is the message.
func (t trimmed) Error() string { return strings.TrimPrefix(t.error.Error(), "redis: ") }

// Unwrap returns the error.
func (t trimmed) Unwrap() error { return t.error }

// RedactURL is a URL of Redis as it may be shown: without user, password and
// options.
func RedactURL(rawURL string) string {
	u, err := readRedisURL(rawURL)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return u.shown()
}
