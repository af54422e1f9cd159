package seal

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"belay.run/internal/secret"
)

// KeySize is how many bytes a key has.
const KeySize = 32

// Key is a key with the name under which payloads call for it.
type Key struct {
	ID     string
	secret []byte
}

// NewKey returns the key of those bytes.
func NewKey(id string, secret []byte) Key { return Key{id, secret} }

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidID reports whether a key can be called so.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// Named says which secret a key is.
type Named struct{ ID, Secret string }

// Read reads the keys that are listed and returns their codec. All must be there.
func Read(ctx context.Context, secrets secret.Provider, listed []Named) (*Codec, error) {
	var errs []error
	keys := make([]Key, 0, len(listed))
	for _, l := range listed {
		v, err := secrets.Get(ctx, l.Secret)
		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: %w", l.ID, err))
			continue
		}
		b, err := parse(strings.TrimSpace(v.Reveal())) // files end in a line break
		if err != nil {
			errs = append(errs, fmt.Errorf("key %s: secret %s: %w", l.ID, l.Secret, err))
			continue
		}
		keys = append(keys, Key{l.ID, b})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return New(keys...)
}

// parse reads the text of a key, which it never shows.
func parse(text string) ([]byte, error) {
	decode := base64.StdEncoding.DecodeString
	if len(text) == hex.EncodedLen(KeySize) {
		decode = hex.DecodeString
	}
	b, err := decode(text)
	if err != nil || len(b) != KeySize {
		return nil, fmt.Errorf("want %d random bytes in base64 or hexadecimal, as `openssl rand -base64 %d` prints them", KeySize, KeySize)
	}
	return b, nil
}
