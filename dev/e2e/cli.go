package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/starter/cli"
)

// Result is how a command ended.
type Result struct {
	Code   int
	Stdout string
	Stderr string
}

// CLI runs a command of the starter in this process.
func (e *Env) CLI(t *testing.T, args ...string) Result {
	t.Helper()
	var out bytes.Buffer
	r := e.CLITo(t, &out, args...)
	r.Stdout = out.String()
	return r
}

// CLITo is [Env.CLI] with its standard output written to out while it runs.
func (e *Env) CLITo(t *testing.T, out io.Writer, args ...string) Result {
	t.Helper()
	var errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*Patience)
	defer cancel()
	code := cli.Execute(ctx, cli.Options{
		Name: "belay", Out: out, Err: &errOut, In: bytes.NewReader(nil), Getenv: e.Getenv,
		Connect: func(context.Context) (*cli.Connection, error) {
			return &cli.Connection{
				Temporal:  e.Temporal.Client(),
				Namespace: e.Temporal.Namespace(),
				Tracing:   e.tracing,
				Store:     func(context.Context) (store.Store, error) { return e.Store, nil },
				Logs:      func(context.Context) (*logs.Logs, error) { return e.Logs, nil },
				Redis:     func() (redis.UniversalClient, error) { return e.redis, nil },
			}, nil
		},
	}, args)
	return Result{Code: code, Stderr: errOut.String()}
}

// RunFile runs a pipeline file as `starter run FILE -o json` does and returns
// its document.
func (e *Env) RunFile(t *testing.T, file string, args ...string) (*run.Document, Result) {
	t.Helper()
	r := e.CLI(t, append([]string{"run", file, "-o", "json"}, args...)...)
	var doc run.Document
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &doc), "the document on standard output:\n%s\nstandard error:\n%s", r.Stdout, r.Stderr)
	require.NotEmpty(t, doc.ID, "standard output:\n%s\nstandard error:\n%s", r.Stdout, r.Stderr)
	return &doc, r
}
