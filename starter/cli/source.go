package cli

import (
	"context"
	"fmt"
	"path/filepath"

	"belay.run/internal/archive"
	"belay.run/internal/spec"
	"belay.run/internal/tree"
)

const (
	// sourcePrefix is where packed folders lie in the store.
	sourcePrefix = "source"
	// maxSource bounds a packed folder, in bytes of its files.
	maxSource = 8 << 30
)

// packSource packs the folder that the pipeline works on into the store, and
// returns its key; "" where the pipeline names none.
func (a *app) packSource(ctx context.Context, conn *Connection, file string, plan *spec.Plan) (string, error) {
	if plan.Source == nil || plan.Source.Path == "" {
		return "", nil
	}
	dir := plan.Source.Path
	if !filepath.IsAbs(dir) && file != stdinName {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	st, err := conn.Store(ctx)
	if err != nil {
		return "", err
	}
	key, stats, err := archive.PackToStore(ctx, st, sourcePrefix, dir, archive.Options{
		Exclude: plan.Source.Exclude, Limit: maxSource,
	})
	if err != nil {
		return "", usage("packing source.path %s: %w", dir, err)
	}
	for _, note := range stats.Notes {
		// Progress only: a closed stream shows itself soon enough.
		_, _ = fmt.Fprintf(a.Err, "source: left out %s\n", tree.Clean(note))
	}
	return key, nil
}
