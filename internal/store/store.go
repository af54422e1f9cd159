// Package store keeps logs, artifacts and packed sources in the one place that
// whoever starts runs and whoever works on them both reach: a directory or
// Redis.
//
// Keys are names separated by slashes, as in logs/<run>/<node>/<attempt>. A
// name may hold any bytes but a slash and is never empty. A key may be an
// object and at the same time a folder of others.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// What can go wrong in a store beside the ordinary errors of disks and
// networks. The errors that wrap these say where it happened.
var (
	// ErrNotFound says that no object has the key.
	ErrNotFound = errors.New("not found in the store")
	// ErrFull says that the place where objects are kept has no room left.
	ErrFull = errors.New("the store is full")
	// ErrTooLarge says that an object is over the limit given to Put.
	ErrTooLarge = errors.New("too large for the store")
	// ErrConflict says that an object did not end where an Append expected.
	ErrConflict = errors.New("object is not as expected")
)

// maxKey is how long a key may be, in bytes.
const maxKey = 2048

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}

// Store keeps objects. All methods are safe for concurrent use, in this process
// and by others on the same place; an object that grows by Append has one
// writer at a time.
type Store interface {
	// Put stores what r yields, whole or not at all: readers see the former
	// object, or none, until it is complete and durable. More than limit bytes
	// are refused with ErrTooLarge; a limit of 0 means none.
	Put(ctx context.Context, key string, r io.Reader, limit int64) (Info, error)
	// Get reads an object as it was at the time of the call.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Append adds p at the end of the object, which must be off bytes long; the
	// first one, with an off of 0, creates it. Else it is ErrConflict and
	// nothing is written. After any error the object is what it was. It survives
	// the end of this process, not always the end of power.
	Append(ctx context.Context, key string, off int64, p []byte) error
	// ReadAt reads into p from off, as io.ReaderAt does, so that a growing
	// object can be followed: fewer bytes than len(p) come with io.EOF.
	ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error)
	// Stat describes an object.
	Stat(ctx context.Context, key string) (Info, error)
	// List yields the object with the key prefix, and all in the folder of that
	// name; an empty prefix means all there are. The order is not fixed. It ends
	// at the first error.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes the object with the key prefix and all in the folder of
	// that name. That there are none is no error.
	Delete(ctx context.Context, prefix string) error
	// String names the place, for messages.
	String() string
	// Close lets go of what the store holds open.
	Close() error
}

// Open opens the store at location: "file:///dir", whose directory is made
// where missing, or "redis", which uses rdb and does not close it. Rdb may be
// nil for a directory.
func Open(ctx context.Context, location string, rdb redis.UniversalClient) (Store, error) {
	return open(ctx, location, rdb, openDir)
}

// OpenLate is Open for those who mostly read: a directory is made by the first
// thing that is written to it. One that is missing is an empty store.
func OpenLate(ctx context.Context, location string, rdb redis.UniversalClient) (Store, error) {
	return open(ctx, location, rdb, openLate)
}

func open(ctx context.Context, location string, rdb redis.UniversalClient, dir func(context.Context, string) (Store, error)) (Store, error) {
	if location == "redis" {
		if rdb == nil {
			return nil, &LocationError{location, "no Redis is configured: set REDIS_URL, or BELAY_STORE to file:///some/dir"}
		}
		return &redisStore{rdb: rdb}, nil
	}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" || u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" || u.Fragment != "" {
		return nil, &LocationError{location, `want "redis" or "file:///absolute/dir"`}
	}
	return dir(ctx, filepath.Clean(u.Path))
}

// LocationError says that a location can be no store, whatever is there.
type LocationError struct{ Location, Why string }

// Error names the location.
func (e *LocationError) Error() string { return fmt.Sprintf("store %q: %s", e.Location, e.Why) }

// checkKey refuses keys that name nothing.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("store key: empty")
	case len(key) > maxKey:
		return fmt.Errorf("store key %.60q…: %d bytes long, at most %d are allowed", key, len(key), maxKey)
	case strings.HasPrefix(key, "/"), strings.HasSuffix(key, "/"), strings.Contains(key, "//"):
		return fmt.Errorf("store key %q: has an empty name between slashes", key)
	}
	return nil
}

// under reports whether key is prefix or lies in the folder of that name.
func under(key, prefix string) bool {
	rest, ok := strings.CutPrefix(key, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

// limited passes on at most limit bytes of r and then fails with ErrTooLarge.
// It ends with the cause of ctx once that is over.
type limited struct {
	ctx   context.Context //nolint:containedctx // lives as long as one call of Put
	r     io.Reader
	limit int64
	n     int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.ctx.Err() != nil {
		return 0, context.Cause(l.ctx)
	}
	n, err := l.r.Read(p)
	l.n += int64(n)
	if l.limit > 0 && l.n > l.limit {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, l.limit)
	}
	return n, err
}
