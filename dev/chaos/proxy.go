package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Proxy is a network link that can be made slow, and cut.
type Proxy struct{ proxy *toxiproxy.Proxy }

// NewProxy opens a link to upstream, host:port, on a free port of this machine.
func NewProxy(upstream string) (*Proxy, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "link", "127.0.0.1:0", upstream)
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("opening a proxy to %s: %w", upstream, err)
	}
	return &Proxy{p}, nil
}

// Addr is host:port of the link's near end.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Close ends the link and all connections over it.
func (p *Proxy) Close() { p.proxy.Stop() }

// Cut lets nothing through any more, in either direction, and breaks nothing
// off: each side waits, as when a cable is pulled.
func (p *Proxy) Cut() error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := p.add("cut-"+stream, "timeout", stream, `{"timeout": 0}`); err != nil {
			return err
		}
	}
	return nil
}

// Heal undoes Cut. Connections that were open meanwhile are broken off, as
// nobody knows what was lost on them.
func (p *Proxy) Heal(ctx context.Context) error {
	for _, stream := range []string{"upstream", "downstream"} {
		if err := p.proxy.Toxics.RemoveToxic(ctx, "cut-"+stream); err != nil {
			return fmt.Errorf("healing a link: %w", err)
		}
	}
	return nil
}

// Delay makes a round trip take d longer.
func (p *Proxy) Delay(d time.Duration) error {
	return p.add("delay", "latency", "downstream", fmt.Sprintf(`{"latency": %d}`, d.Milliseconds()))
}

func (p *Proxy) add(name, kind, stream, attributes string) error {
	text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, name, kind, stream, attributes)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		return fmt.Errorf("disturbing a link: %w", err)
	}
	return nil
}
