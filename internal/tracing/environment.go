package tracing

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// fromEnvironment makes the exporter that the variables of OpenTelemetry ask for;
// nil where they name no collector. Everything but which one it is the exporter
// reads from them itself.
func fromEnvironment(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	kind := strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))
	named := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	switch {
	case strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true"):
		return nil, nil //nolint:nilnil // off is a way to run
	case kind == "none", kind == "" && !named:
		return nil, nil //nolint:nilnil // as above
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: want otlp or none", kind)
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	var to sdktrace.SpanExporter
	var err error
	switch protocol {
	case "", "http/protobuf":
		to, err = otlptracehttp.New(ctx)
	case "grpc":
		to, err = otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want http/protobuf or grpc", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing to send traces as OTEL_… says: %w", err)
	}
	return to, nil
}
