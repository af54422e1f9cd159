package devcmd

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"belay.run/dev/target"
)

// targetPort is where the target listens.
const targetPort = 9500

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
			l, err := target.Listen(ctx, port)
			if err != nil {
				return err
			}
			say(cmd.OutOrStdout(), "listening on http://%s; each answer takes %s, Ctrl-C ends\n", l.Addr(), after)
			return target.Serve(ctx, l, after)
		},
	}
	cmd.Flags().IntVar(&port, "port", targetPort, "port on 127.0.0.1; 0 takes a free one")
	cmd.Flags().DurationVar(&after, "after", target.After, "how long an answer takes")
	return cmd
}
