package tracing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/tracing"
)

// TestOpen reads the variables of the process and so runs alone.
func TestOpen(t *testing.T) {
	const endpoint, kind, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, c := range map[string]struct {
		env  map[string]string
		on   bool
		want string // of the error
	}{
		"Nothing":       {},
		"Endpoint":      {env: map[string]string{endpoint: "http://127.0.0.1:1"}, on: true},
		"OfTracesOnly":  {env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"}, on: true},
		"ByName":        {env: map[string]string{kind: "otlp"}, on: true},
		"GRPC":          {env: map[string]string{endpoint: "http://127.0.0.1:1", protocol: "grpc"}, on: true},
		"None":          {env: map[string]string{endpoint: "http://127.0.0.1:1", kind: "none"}},
		"Disabled":      {env: map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}},
		"OtherExporter": {env: map[string]string{kind: "zipkin"}, want: "OTEL_TRACES_EXPORTER=zipkin: want otlp or none"},
		"OtherProtocol": {env: map[string]string{endpoint: "http://127.0.0.1:1", protocol: "http/json"}, want: "want http/protobuf or grpc"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			traces, err := tracing.Open(t.Context(), "test", nil)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.on, traces.On())
			traces.Close(time.Minute)
		})
	}
}

func TestWithParent(t *testing.T) {
	t.Parallel()
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	at, state := tracing.Parent(tracing.WithParent(t.Context(), good, "vendor=1"))
	require.Equal(t, []string{good, "vendor=1"}, []string{at, state})
	require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", tracing.TraceID(good))
	for _, bad := range []string{"", "x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", good + "\n"} {
		at, _ := tracing.Parent(tracing.WithParent(t.Context(), bad, ""))
		require.Empty(t, at, "%q", bad)
		require.Empty(t, tracing.TraceID(bad))
	}
}
