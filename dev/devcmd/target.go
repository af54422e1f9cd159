package devcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	// targetPort is where the target listens, targetAfter how long it takes.
	targetPort  = 9500
	targetAfter = 50 * time.Millisecond
	// targetMost is how long it may be asked to take.
	targetMost = time.Minute
	// targetHeaders bounds how long a client takes to ask.
	targetHeaders = 10 * time.Second
)

// targetCommand is a server for light tasks to talk to.
func targetCommand() *cobra.Command {
	var port int
	var after time.Duration
	cmd := &cobra.Command{
		Use:   "target",
		Short: "A server for light tasks to talk to: it answers each request after a while",
		Long: "Answers each request after a while with 200, until Ctrl-C. A request may ask for\n" +
			"another answer: http://127.0.0.1:9500/?after=2s&status=503",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return serveTarget(ctx, port, after, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&port, "port", targetPort, "port on 127.0.0.1; 0 takes a free one")
	cmd.Flags().DurationVar(&after, "after", targetAfter, "how long an answer takes")
	return cmd
}

// serveTarget answers requests until ctx ends.
func serveTarget(ctx context.Context, port int, after time.Duration, out io.Writer) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: targetHeaders, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answerAsAsked(w, r, after)
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // what it has not answered is of no use now
	say(out, "listening on http://%s; each answer takes %s, Ctrl-C ends\n", l.Addr(), after)
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// answerAsAsked answers with what the request asks for.
func answerAsAsked(w http.ResponseWriter, r *http.Request, after time.Duration) {
	status := http.StatusOK
	q := r.URL.Query()
	if text := q.Get("after"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > targetMost {
			http.Error(w, "after: want a duration of at most 1m", http.StatusBadRequest)
			return
		}
		after = d
	}
	if text := q.Get("status"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < http.StatusOK || n > 599 {
			http.Error(w, "status: want 200 to 599", http.StatusBadRequest)
			return
		}
		status = n
	}
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Who has gone hears nothing.
	_, _ = fmt.Fprintf(w, "{\"status\": %d}\n", status)
}
