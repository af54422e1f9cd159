package redisd

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// embedded is a Redis in this process, for machines that have none.
func embedded(addr string) (*Server, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // else nothing ever expires
	if err := m.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("starting the embedded Redis at %s: %w", addr, err)
	}
	return &Server{
		URL:  "redis://" + addr,
		Kind: Embedded,
		Note: "embedded, as there is no redis-server on the path: slower, and its state is lost at the end",
		stop: func() error { m.Close(); return nil },
	}, nil
}
