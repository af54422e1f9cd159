// Package collector is a collector of traces for tests: it takes what an exporter
// sends by OTLP over HTTP.
package collector

import (
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"belay.run/internal/tracing"
)

// Span is a span as it arrived.
type Span struct {
	Trace, ID, Parent string
	Name              string
	Attributes        map[string]string
	// Failed says that its status is an error, Message what the status says.
	Failed         bool
	Message        string
	Started, Ended time.Time
	Resource       map[string]string
}

// Collector takes spans.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []Span
	raw   [][]byte
}

// Start starts a collector that ends with the test.
func Start(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Tracing is one that sends here. Whoever asks for it closes it.
func (c *Collector) Tracing(t *testing.T) *tracing.Tracing {
	t.Helper()
	to, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(c.URL+"/v1/traces"))
	require.NoError(t, err)
	out, err := tracing.New(t.Context(), to, "belay-test", func(err error) { t.Errorf("traces are not delivered: %v", err) })
	require.NoError(t, err)
	return out
}

// Spans are those that arrived, in the order of their beginning.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(slices.Values(c.spans), func(a, b Span) int { return cmp.Compare(a.Started.UnixNano(), b.Started.UnixNano()) })
}

// Raw is all that arrived, as it was sent.
func (c *Collector) Raw() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.raw)
}

func (c *Collector) take(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var req collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(text, &req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, text)
	for _, from := range req.GetResourceSpans() {
		about := texts(from.GetResource().GetAttributes())
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Attributes: texts(s.GetAttributes()), Resource: about,
					Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: s.GetStatus().GetMessage(),
					Started: time.Unix(0, int64(s.GetStartTimeUnixNano())), Ended: time.Unix(0, int64(s.GetEndTimeUnixNano())),
				})
			}
		}
	}
	return nil
}

// texts are attributes as text.
func texts(attributes []*commonpb.KeyValue) map[string]string {
	out := make(map[string]string, len(attributes))
	for _, a := range attributes {
		if v, ok := a.GetValue().GetValue().(*commonpb.AnyValue_IntValue); ok {
			out[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
			continue
		}
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}
