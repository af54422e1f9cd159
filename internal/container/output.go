package container

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// drainBound is how long the rest of the output may take after the container's
// end. The engine closes the stream when it has handed over all of it.
const drainBound = 10 * time.Second

// output is the stream of what a container writes.
type output struct {
	stream client.HijackedResponse
	done   chan struct{}
	once   sync.Once
}

// attach takes the output of a container from its first byte: it has not been
// started yet.
func attach(ctx context.Context, api *client.Client, id string, stdout, stderr io.Writer) (*output, error) {
	got, err := api.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("attaching to the container's output: %w", err)
	}
	o := &output{stream: got.HijackedResponse, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		// What breaks the stream breaks the wait for the container too.
		_, _ = stdcopy.StdCopy(stdout, stderr, o.stream.Reader)
	}()
	return o, nil
}

// finish waits for what is left of the output of a container that has ended.
func (o *output) finish() {
	select {
	case <-o.done:
	case <-time.After(drainBound):
	}
	o.close()
}

// close ends the stream.
func (o *output) close() {
	o.once.Do(func() {
		o.stream.Close()
		<-o.done
	})
}
