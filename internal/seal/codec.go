// Package seal encrypts what Belay hands to Temporal, so that inputs, results,
// errors and progress lie in its histories where only holders of a key read them.
//
// A client is sealed at its border, by [Codec.Apply]: whatever leaves is
// encrypted, whatever comes is opened, and nothing that cannot be opened is acted
// upon. What runs above it, readers of raw histories among them, sees plain
// payloads.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
)

// What a sealed payload says of itself in clear.
const (
	encoding = "binary/belay-sealed-v1"
	keyField = "belay-key"
)

// Each payload has a key of its own, derived from the named one by a random salt:
// random nonces under a single key would run out after some billions of payloads.
const (
	saltSize  = 16
	nonceSize = 12
)

// Codec seals payloads with its first key and opens those of all its keys. It
// leaves alone what is not sealed, so that histories from before stay readable.
// It is safe for concurrent use.
type Codec struct {
	write string // "": nothing is sealed
	keys  map[string][]byte
}

var _ converter.PayloadCodec = (*Codec)(nil)

// New returns a codec that seals with the first key. Without keys it seals
// nothing, and says of what is sealed which key it lacks.
func New(keys ...Key) (*Codec, error) {
	c := &Codec{keys: make(map[string][]byte, len(keys))}
	for i, k := range keys {
		if len(k.secret) != KeySize {
			return nil, fmt.Errorf("key %s: want %d bytes, found %d", k.ID, KeySize, len(k.secret))
		}
		if _, twice := c.keys[k.ID]; twice {
			return nil, fmt.Errorf("key %s is named twice", k.ID)
		}
		c.keys[k.ID] = k.secret
		if i == 0 {
			c.write = k.ID
		}
	}
	return c, nil
}

// Seals reports whether the codec has a key to seal with.
func (c *Codec) Seals() bool { return c.write != "" }

// Encode seals payloads. Those that are sealed already stay as they are.
func (c *Codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if !c.Seals() {
		return payloads, nil
	}
	return each(payloads, c.seal)
}

// Decode opens payloads. It is a [KeyError] where one cannot be opened.
func (c *Codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	return each(payloads, c.open)
}

func each(payloads []*commonpb.Payload, f func(*commonpb.Payload) (*commonpb.Payload, error)) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		var err error
		if out[i], err = f(p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func sealed(p *commonpb.Payload) bool {
	return string(p.GetMetadata()[converter.MetadataEncoding]) == encoding
}

func (c *Codec) seal(p *commonpb.Payload) (*commonpb.Payload, error) {
	if sealed(p) {
		return p, nil
	}
	plain, err := proto.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encrypting a payload: %w", err)
	}
	data := make([]byte, saltSize+nonceSize, saltSize+nonceSize+len(plain)+sha256.Size)
	_, _ = rand.Read(data) // it never fails
	aead, err := c.aead(c.write, data[:saltSize])
	if err != nil {
		return nil, fmt.Errorf("encrypting a payload: %w", err)
	}
	return &commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), keyField: []byte(c.write)},
		Data:     aead.Seal(data, data[saltSize:], plain, associated(c.write)),
	}, nil
}

func (c *Codec) open(p *commonpb.Payload) (*commonpb.Payload, error) {
	if !sealed(p) {
		return p, nil
	}
	id, data := string(p.GetMetadata()[keyField]), p.GetData()
	if _, known := c.keys[id]; !known {
		return nil, &KeyError{ID: id, Known: slices.Sorted(maps.Keys(c.keys))}
	}
	if len(data) < saltSize+nonceSize {
		return nil, &KeyError{ID: id, Err: errors.New("it is cut short")}
	}
	aead, err := c.aead(id, data[:saltSize])
	if err != nil {
		return nil, &KeyError{ID: id, Err: err}
	}
	plain, err := aead.Open(nil, data[saltSize:saltSize+nonceSize], data[saltSize+nonceSize:], associated(id))
	if err != nil {
		return nil, &KeyError{ID: id, Err: err}
	}
	out := new(commonpb.Payload)
	if err := proto.Unmarshal(plain, out); err != nil {
		return nil, &KeyError{ID: id, Err: err}
	}
	return out, nil
}

// aead is the cipher of one payload.
func (c *Codec) aead(id string, salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, c.keys[id], salt, encoding, KeySize)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// associated binds what a payload says of itself to what it holds. The workflow is
// not bound: a parent seals the input of its child, and the codec endpoint is told
// of no workflow.
func associated(id string) []byte { return []byte(encoding + "\x00" + id) }

// KeyError says that a payload cannot be opened, and with which key it was sealed.
type KeyError struct {
	// ID is that of the key.
	ID string
	// Known are the keys that there are, where that one is none of them.
	Known []string
	// Err is why the key that is known does not open it.
	Err error
}

// Error says what is wrong and what to do.
func (e *KeyError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("a payload in Temporal does not open with the key %.64q: payload_keys (BELAY_PAYLOAD_KEYS) gives that id to another key here, or the payload was changed", e.ID)
	}
	known := "there are none here"
	if len(e.Known) > 0 {
		known = "here are " + strings.Join(e.Known, ", ")
	}
	return fmt.Sprintf("a payload in Temporal is encrypted with the key %.64q, which payload_keys (BELAY_PAYLOAD_KEYS) does not name: %s", e.ID, known)
}

// Unwrap returns why the key does not open the payload.
func (e *KeyError) Unwrap() error { return e.Err }
