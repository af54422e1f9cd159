package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"time"

	"belay.run/internal/store"
)

// refreshAfter is how old an archive in the store may be before packing the
// same again renews it, so that retention never removes what is in use.
const refreshAfter = time.Hour

// ErrDamaged says that an archive in the store is not what was packed.
var ErrDamaged = errors.New("the archive is damaged")

// PackToStore packs dir and keeps it in st under prefix/<sha256 of the archive>,
// so that a folder that did not change is stored once. It returns that key.
func PackToStore(ctx context.Context, st store.Store, prefix, dir string, o Options) (key string, s Stats, err error) {
	temp, err := os.CreateTemp("", "belay-pack-*")
	if err != nil {
		return "", Stats{}, fmt.Errorf("packing %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, temp.Close()) }()
	// Without a name it is gone with this process, however that ends.
	if err := os.Remove(temp.Name()); err != nil {
		return "", Stats{}, fmt.Errorf("packing %s: %w", dir, err)
	}
	sum := sha256.New()
	s, err = Pack(ctx, io.MultiWriter(temp, sum), dir, o)
	if err != nil {
		return "", s, err
	}
	key = path.Join(prefix, hex.EncodeToString(sum.Sum(nil)))
	info, err := st.Stat(ctx, key)
	if err == nil && time.Since(info.Modified) < refreshAfter {
		return key, s, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", s, err
	}
	if _, err := temp.Seek(0, io.SeekStart); err != nil {
		return "", s, err
	}
	_, err = st.Put(ctx, key, temp, 0)
	return key, s, err
}

// UnpackFromStore unpacks what PackToStore kept under key into dir, and checks
// that it is what was packed.
func UnpackFromStore(ctx context.Context, st store.Store, key, dir string, l Limits) (s Stats, err error) {
	r, err := st.Get(ctx, key)
	if err != nil {
		return Stats{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return Unpack(ctx, &verifier{r: r, sum: sha256.New(), want: path.Base(key)}, dir, l)
}

// verifier fails at the end of what it reads if that does not have the sum.
type verifier struct {
	r    io.Reader
	sum  hash.Hash
	want string
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.sum.Write(p[:n])
	if errors.Is(err, io.EOF) {
		if got := hex.EncodeToString(v.sum.Sum(nil)); got != v.want {
			return n, fmt.Errorf("%w: its checksum is %s instead of %s", ErrDamaged, got, v.want)
		}
	}
	return n, err
}
