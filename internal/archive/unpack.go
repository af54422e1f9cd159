package archive

import (
	"context"
	"errors"
	"io"
)

// Unpack writes what r holds into the folder dir, which is made where missing;
// files that are there already are replaced. Nothing is ever written through a
// symbolic link or outside of dir, and no link may point there. After an error
// a dir that was new or empty is empty again; in any other the error is
// ErrPartial too.
func Unpack(ctx context.Context, r io.Reader, dir string, l Limits) (Stats, error) {
	return Stats{}, errors.ErrUnsupported
}
