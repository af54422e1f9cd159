package archive

import (
	"context"
	"errors"

	"belay.run/internal/store"
)

// PackToStore packs dir and keeps it in st under prefix/<sha256 of the archive>,
// so that a folder that did not change is stored once. It returns that key.
func PackToStore(ctx context.Context, st store.Store, prefix, dir string, o Options) (string, Stats, error) {
	return "", Stats{}, errors.ErrUnsupported
}

// UnpackFromStore unpacks what PackToStore kept under key into dir, and checks
// that it is what was packed.
func UnpackFromStore(ctx context.Context, st store.Store, key, dir string, l Limits) (Stats, error) {
	return Stats{}, errors.ErrUnsupported
}
