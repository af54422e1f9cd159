package types_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"belay.run/internal/redistest"
	"belay.run/internal/task"
)

const healthCheck = "health_check"

func TestHealthHTTP(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ill" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "fine")
	})
	b := setup(t)
	out := b.succeeds(t, healthCheck, with{"url": url + "/health", "status": 200, "expect": "fine"})
	require.Equal(t, "http", out["kind"])
	require.Equal(t, 200, out["status"])
	b.fails(t, healthCheck, with{"url": url + "/ill"}, unwell(), "answered 503")
	b.fails(t, healthCheck, with{"url": url, "expect": "well"}, unexpected(), "do not hold")
}

func TestHealthTCP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	addr := speak(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") })
	require.Equal(t, addr, b.job(t, healthCheck, with{"url": "tcp://" + addr}).Target())
	b.succeeds(t, healthCheck, with{"url": "tcp://" + addr})
	b.succeeds(t, healthCheck, with{"kind": "tcp", "url": addr, "expect": []string{"ESMTP", "220"}})
	b.fails(t, healthCheck, with{"url": "tcp://" + addr, "expect": "554"}, unwell(), "closed before")
	b.fails(t, healthCheck, with{"url": "tcp://" + nobody(t)}, unwell(), "connection refused")
	endless := speak(t, func(c net.Conn) {
		_, err := c.Write(make([]byte, 4096))
		for err == nil {
			_, err = c.Write(make([]byte, 4096))
		}
	})
	b.fails(t, healthCheck, with{"url": "tcp://" + endless, "expect": "x"}, unexpected(), "the first 16384 bytes")
}

func TestHealthGRPC(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, states := grpc.NewServer(), grpchealth.NewServer()
	health.RegisterHealthServer(s, states)
	states.SetServingStatus("ill", health.HealthCheckResponse_NOT_SERVING)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	b := setup(t)
	url := "grpc://" + l.Addr().String()
	b.succeeds(t, healthCheck, with{"url": url, "secret": "TOKEN"})
	b.fails(t, healthCheck, with{"url": url, "service": "ill"}, unwell(), "its status is NOT_SERVING")
	b.fails(t, healthCheck, with{"url": url, "service": "none"}, unexpected(), `knows no service "none"`)
	b.fails(t, healthCheck, with{"url": "grpc://" + nobody(t)}, unwell(), "connection refused")
	b.fails(t, healthCheck, with{"url": "grpc://" + speak(t, says("garbage"))}, unwell(), "")
	b.fails(t, healthCheck, with{"url": "grpcs://" + l.Addr().String()}, unwell(), "tls")
	bare := setup(t, func(b *testBundle) { b.config.Guard.Allow = nil })
	bare.fails(t, healthCheck, with{"url": url}, invalid(), "does not talk to unless")
}

func TestHealthGRPCOfAServerWithoutTheProtocol(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	setup(t).fails(t, healthCheck, with{"url": "grpc://" + l.Addr().String()}, unexpected(), "does not answer the health protocol")
}

func TestHealthRedis(t *testing.T) {
	t.Parallel()
	b := setup(t)
	open, closed := redistest.Start(t), redistest.Start(t)
	require.NoError(t, closed.Client(t).ConfigSet(t.Context(), "requirepass", password).Err())
	b.succeeds(t, healthCheck, with{"url": "redis://" + open.Addr})
	b.succeeds(t, healthCheck, with{"url": "redis://" + closed.Addr, "secret": "TOKEN"})
	b.succeeds(t, healthCheck, with{"url": "redis://default@" + closed.Addr, "secret": "TOKEN"})
	b.fails(t, healthCheck, with{"url": "redis://" + closed.Addr}, unexpected(), "demands a password")
	wrong := setup(t, func(b *testBundle) { b.Secrets = secrets{"TOKEN": "wrong-password"} })
	wrong.fails(t, healthCheck, with{"url": "redis://" + closed.Addr, "secret": "TOKEN"}, unexpected(), "refuses AUTH: -WRONGPASS")
	open.Stop(t)
	b.fails(t, healthCheck, with{"url": "redis://" + open.Addr}, unwell(), "connection refused")
}

func TestHealthRedisOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for answer, wanted := range map[string]struct {
		want
		says string
	}{
		"-LOADING Redis is loading the dataset\r\n": {unwell(), "-LOADING"},
		"-MISCONF no disk\r\n":                      {unwell(), "-MISCONF"},
		"HTTP/1.1 400 Bad Request\r\n":              {unwell(), "does not speak as Redis does"},
		strings.Repeat("x", 8<<10):                  {unwell(), "does not speak as Redis does"},
		"+PO":                                       {unwell(), "closed before"},
		"":                                          {unwell(), "closed before"},
		"-NOAUTH Authentication required.\r\n":      {unexpected(), "demands a password"},
		"-ERR " + password + " max clients reached\x00\r": {unwell(), "closed before"},
	} {
		b.fails(t, healthCheck, with{"url": "redis://" + speak(t, says(answer))}, wanted.want, wanted.says)
	}
}

// postgresAnswer is a message as PostgreSQL sends it.
func postgresAnswer(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))) + body
}

func TestHealthPostgres(t *testing.T) {
	t.Parallel()
	b := setup(t)
	asked := make(chan string, 1)
	addr := speak(t, func(c net.Conn) {
		head := make([]byte, 8)
		_, _ = io.ReadFull(c, head)
		rest := make([]byte, max(int(binary.BigEndian.Uint32(head))-8, 0)%4096)
		_, _ = io.ReadFull(c, rest)
		asked <- string(rest)
		_, _ = io.WriteString(c, postgresAnswer('R', "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"))
	})
	b.succeeds(t, healthCheck, with{"url": "postgres://ada@" + addr + "/shop"})
	require.Equal(t, "user\x00ada\x00application_name\x00belay\x00database\x00shop\x00\x00", <-asked)

	failed := func(code string) string { return postgresAnswer('E', "SFATAL\x00C"+code+"\x00Mthe reason\x00\x00") }
	for _, code := range []string{"57P03", "53300"} {
		b.fails(t, healthCheck, with{"url": "postgresql://" + speak(t, says(failed(code)))}, unwell(), "takes no connections: the reason ("+code+")")
	}
	b.succeeds(t, healthCheck, with{"url": "postgres://" + speak(t, says(failed("28000")))})
	for _, text := range []string{
		"HTTP/1.1 400 Bad Request\r\n\r\n", postgresAnswer('E', "nonsense"), postgresAnswer('Z', "x"), "R\x00\x00\x00\x00", "R\xff\xff\xff\xff",
	} {
		b.fails(t, healthCheck, with{"url": "postgres://" + speak(t, says(text))}, unwell(), "does not speak as PostgreSQL does")
	}
	b.fails(t, healthCheck, with{"url": "postgres://" + speak(t, says("R\x00\x00\x01\x00half"))}, unwell(), "closed before")
}

func TestHealthAMQP(t *testing.T) {
	t.Parallel()
	b := setup(t)
	frame := func(method string) string {
		return string(binary.BigEndian.AppendUint32([]byte{1, 0, 0}, uint32(len(method)))) + method + "\xce"
	}
	asked := make(chan string, 1)
	addr := speak(t, func(c net.Conn) {
		hello := make([]byte, 8)
		_, _ = io.ReadFull(c, hello)
		asked <- string(hello)
		_, _ = io.WriteString(c, frame("\x00\x0a\x00\x0a\x00\x09"))
	})
	b.succeeds(t, healthCheck, with{"url": "amqp://" + addr})
	require.Equal(t, "AMQP\x00\x00\x09\x01", <-asked)
	b.succeeds(t, healthCheck, with{"url": "amqp://" + speak(t, says("AMQP\x00\x01\x00\x00"))})
	for _, text := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "\x01\x00\x00\xff\xff\xff\xff", frame("\x00\x0a\x00\x32"), "\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0ax"} {
		b.fails(t, healthCheck, with{"url": "amqp://" + speak(t, says(text))}, unwell(), "AMQP")
	}
	b.fails(t, healthCheck, with{"url": "amqp://" + speak(t, says("\x01\x00"))}, unwell(), "closed before")
	b.fails(t, healthCheck, with{"url": "amqps://" + speak(t, says("AMQP\x00\x00\x09\x01"))}, unwell(), "tls")
}

// TestHealthEndsWithItsContext holds that whoever says nothing is waited for no
// longer than the task may take.
func TestHealthEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, scheme := range []string{"redis", "rediss", "postgres", "amqp", "tcp", "grpc", "grpcs", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			here := make(chan struct{}, 10)
			addr := speak(t, func(c net.Conn) {
				here <- struct{}{}
				_, _ = io.Copy(io.Discard, bufio.NewReader(c)) // until the other side has gone
			})
			w := with{"url": scheme + "://" + addr}
			if scheme == "tcp" {
				w["expect"] = "hello"
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-here
				cancel(io.ErrClosedPipe)
			}()
			_, err := b.job(t, healthCheck, w).Run(ctx, task.Origin{})
			require.ErrorIs(t, err, io.ErrClosedPipe)
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			_, err = b.job(t, healthCheck, w).Run(ctx, task.Origin{})
			requireFailure(t, err, tooLate(), "in time")
		})
	}
}

func TestHealthTargets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for url, target := range map[string]string{
		"https://Shop.example/h": "shop.example:443", "http://shop": "shop:80", "redis://cache": "cache:6379", "rediss://c:1": "c:1",
		"postgres://db/shop": "db:5432", "amqp://q": "q:5672", "amqps://q": "q:5671", "grpcs://api": "api:443", "tcp://[::1]:5": "[::1]:5",
	} {
		require.Equal(t, target, b.job(t, healthCheck, with{"url": url}).Target(), url)
	}
}
