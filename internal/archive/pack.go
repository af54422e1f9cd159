package archive

import (
	"context"
	"errors"
	"io"
)

// Pack writes the folder dir to w as a tar.gz. The same tree gives the same
// bytes, whoever owns it and whenever it was written. Permissions and symbolic
// links are kept. A file that cannot be read is an error.
func Pack(ctx context.Context, w io.Writer, dir string, o Options) (Stats, error) {
	return Stats{}, errors.ErrUnsupported
}
