// Command bench measures Belay beside peers that do the same without it:
//
//	go run ./dev/bench NAME [--quick] [-o json]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	fullRounds  = 7
	quickRounds = 2
)

func main() {
	if child, ok := children()[os.Getenv(childVariable)]; ok {
		os.Exit(child())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var quick bool
	var output string
	cmd := &cobra.Command{
		Use:           "bench {" + names() + "}",
		Short:         "Measure Belay beside peers that do the same without it",
		Args:          cobra.ExactArgs(1),
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			rounds := fullRounds
			if quick {
				rounds = quickRounds
			}
			return measureAll(cmd.Context(), args[0], rounds, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, fmt.Sprintf("%d rounds in place of %d", quickRounds, fullRounds))
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text for people, json for programs")
	return cmd
}

func measureAll(ctx context.Context, name string, rounds int, output string, out, progress io.Writer) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("%q is not an output format: text or json", output)
	}
	r := &Report{Bench: name, Machine: machine(), Rounds: rounds, Figures: []Figure{}}
	found := false
	for _, b := range benches() {
		if name != b.name && name != all {
			continue
		}
		found = true
		if err := b.run(ctx, r, progress); err != nil {
			return errors.Join(fmt.Errorf("bench %s: %w", b.name, err), context.Cause(ctx))
		}
	}
	if !found {
		return fmt.Errorf("%q is no benchmark: want one of %s", name, names())
	}
	if output == "json" {
		return r.writeJSON(out)
	}
	return r.writeTable(out)
}
