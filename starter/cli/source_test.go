package cli_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"belay.run/internal/archive"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/starter/cli"
	"belay.run/workflows"
)

const withSource = `version: 1
name: built
source: {path: app}
stages:
  - name: build
    steps:
      - {name: make, run: make}
`

func TestRunPacksTheSourceBesideItsFile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.onStart(run.Document{})
	path := file(t, "built.yaml", withSource)
	app := filepath.Join(filepath.Dir(path), "app")
	require.NoError(t, os.Mkdir(app, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(app, "main.go"), []byte("package main\n"), 0o644))

	r := b.exec(t, "run", path, "--detach")
	require.Equal(t, cli.ExitOK, r.code, r.err)
	<-made
	var in workflows.PipelineInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(b.server.Asked().Starts[0].GetInput(), &in))
	require.NotEmpty(t, in.SourceRef)
	dir := t.TempDir()
	_, err := archive.UnpackFromStore(t.Context(), b.store, in.SourceRef, dir, archive.Limits{})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "main.go"))
	require.NoError(t, err)
	require.Equal(t, "package main\n", string(text))
}

func TestRunWithoutItsSourceStartsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := b.exec(t, "run", file(t, "built.yaml", withSource))
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "source.path")
	require.Empty(t, b.server.Asked().Starts)

	connect := b.opts.Connect
	b.opts.Connect = func(ctx context.Context) (*cli.Connection, error) {
		c, err := connect(ctx)
		c.Store = func(context.Context) (store.Store, error) { return nil, errors.New("the store is gone") }
		return c, err
	}
	r = b.exec(t, "run", file(t, "built.yaml", withSource))
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the store is gone")
	require.Empty(t, b.server.Asked().Starts)
}
