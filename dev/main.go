// Command dev runs Belay with everything it needs in one process.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"belay.run/dev/stack"
)

func main() {
	t0 := time.Now()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := stack.Start(ctx, stack.Options{Port: 7233, UIPort: 8233, RedisPort: 6379})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("Temporal at", s.Temporal.Address(), s.UI.URL, s.Redis.URL, time.Since(t0))
	<-ctx.Done()
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
