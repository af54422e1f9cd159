package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSweep(t *testing.T) {
	t.Parallel()

	// only answers that the named nodes are live.
	only := func(nodes ...string) func(context.Context, Binding) (bool, error) {
		return func(_ context.Context, b Binding) (bool, error) {
			return slices.Contains(nodes, b.Node), nil
		}
	}

	t.Run("RemovesWhatNoLiveRunOwns", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		live, dead := bind(t, h, "run", "live"), bind(t, h, "run", "dead")
		write(t, filepath.Join(dead.Workspace, "f"), "")
		require.NoError(t, h.Sweep(t.Context(), only("live")))
		require.DirExists(t, live.Workspace)
		require.NoDirExists(t, dead.Root)
		bindings, err := h.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 1)
	})

	t.Run("WhatNobodyKnowsLivesOn", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		kept, dead := bind(t, h, "run", "unknown"), bind(t, h, "run", "dead")
		err := h.Sweep(t.Context(), func(_ context.Context, b Binding) (bool, error) {
			if b.Node == "unknown" {
				return false, errors.New("no connection")
			}
			return false, nil
		})
		require.ErrorContains(t, err, "no connection")
		require.DirExists(t, kept.Workspace)
		require.NoDirExists(t, dead.Root, "the others are swept all the same")
	})

	t.Run("OfAnotherBootNothingLives", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		bind(t, h, "run", "n")
		h.boot = "another"
		require.NoError(t, h.Sweep(t.Context(), func(context.Context, Binding) (bool, error) {
			require.Fail(t, "nobody is to be asked")
			return true, nil
		}))
		requireNothingLeft(t, h)
	})

	t.Run("StraysAndDamagedRecords", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		damaged := bind(t, h, "run", "damaged")
		write(t, h.record(stageName("run", "damaged")), "{")
		stray := h.stage("stray-0123456789abcdef")
		require.NoError(t, os.MkdirAll(filepath.Join(stray, "work"), 0o700))
		write(t, filepath.Join(h.Dir(), stagesDir, "a file"), "")
		trash := filepath.Join(h.Dir(), trashDir, "old-0123456789abcdef.abc")
		require.NoError(t, os.MkdirAll(trash, 0o700))
		live := bind(t, h, "run", "live")

		_, err := h.Bindings()
		require.ErrorIs(t, err, errDamaged)
		require.NoError(t, h.Sweep(t.Context(), only("live")))
		require.NoDirExists(t, damaged.Root)
		require.NoDirExists(t, stray)
		require.NoDirExists(t, trash)
		require.DirExists(t, live.Workspace)
		require.Len(t, names(t, filepath.Join(h.Dir(), stagesDir)), 1)
		require.Len(t, names(t, filepath.Join(h.Dir(), bindingsDir)), 1)
	})

	t.Run("BoundAgainWhileOneAskedIsKept", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		dirs := bind(t, h, "run", "n")
		require.NoError(t, h.Sweep(t.Context(), func(ctx context.Context, _ Binding) (bool, error) {
			_, err := h.Bind(ctx, Binding{RunKey: "run", Node: "n", WorkflowID: "wf", RunID: "another"})
			return false, err
		}))
		require.DirExists(t, dirs.Workspace)
	})

	t.Run("EndsWithItsContext", func(t *testing.T) {
		t.Parallel()
		h := open(t)
		dirs := bind(t, h, "run", "n")
		write(t, filepath.Join(dirs.Workspace, "f"), "")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		require.ErrorContains(t, h.Sweep(ctx, only()), "enough")
	})
}
