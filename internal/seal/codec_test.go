package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"belay.run/internal/seal"
	"belay.run/internal/secret"
	"belay.run/internal/spec"
)

const marker = "the number of the account"

// key is one of that name and made of that byte.
func key(id string, b byte) seal.Key { return seal.NewKey(id, bytes.Repeat([]byte{b}, seal.KeySize)) }

func codec(t *testing.T, keys ...seal.Key) *seal.Codec {
	t.Helper()
	c, err := seal.New(keys...)
	require.NoError(t, err)
	return c
}

func payload(t *testing.T, v any) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(v)
	require.NoError(t, err)
	return p
}

// one applies a codec's method to a single payload.
func one(t *testing.T, f func([]*commonpb.Payload) ([]*commonpb.Payload, error), p *commonpb.Payload) *commonpb.Payload {
	t.Helper()
	out, err := f([]*commonpb.Payload{p})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

func TestSealedPayloadsOpen(t *testing.T) {
	t.Parallel()
	c := codec(t, key("k1", 1))
	rapid.Check(t, func(t *rapid.T) {
		p := &commonpb.Payload{
			Metadata: rapid.MapOf(rapid.String().Filter(func(s string) bool { return s != "" }), rapid.SliceOf(rapid.Byte())).Draw(t, "metadata"),
			Data:     rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		was := proto.Clone(p)
		sealed, err := c.Encode([]*commonpb.Payload{p})
		require.NoError(t, err)
		opened, err := c.Decode(sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(was, p), "what is sealed is left as it was")
		require.True(t, proto.Equal(p, opened[0]))
	})
}

func TestCodec(t *testing.T) {
	t.Parallel()
	plain := payload(t, marker)

	t.Run("HidesWhatItSeals", func(t *testing.T) {
		t.Parallel()
		c := codec(t, key("k1", 1))
		first, second := one(t, c.Encode, plain), one(t, c.Encode, plain)
		require.NotContains(t, first.String(), marker)
		require.NotContains(t, first.String(), "json/plain")
		require.NotEqual(t, first.GetData(), second.GetData(), "what is equal does not look so")
	})

	t.Run("SealsOnce", func(t *testing.T) {
		t.Parallel()
		c := codec(t, key("k1", 1))
		sealed := one(t, c.Encode, plain)
		require.True(t, proto.Equal(sealed, one(t, c.Encode, sealed)))
	})

	t.Run("LeavesWhatWasNeverSealed", func(t *testing.T) {
		t.Parallel()
		require.True(t, proto.Equal(plain, one(t, codec(t, key("k1", 1)).Decode, plain)))
	})

	t.Run("WithoutKeysSealsNothing", func(t *testing.T) {
		t.Parallel()
		for _, c := range []*seal.Codec{new(seal.Codec), codec(t)} {
			require.False(t, c.Seals())
			require.True(t, proto.Equal(plain, one(t, c.Encode, plain)))
		}
	})

	t.Run("AnotherKeyIsWrittenWithAndTheOldOneStillReads", func(t *testing.T) {
		t.Parallel()
		before := codec(t, key("k1", 1))
		learns := codec(t, key("k1", 1), key("k2", 2))
		after := codec(t, key("k2", 2), key("k1", 1))
		old, fresh := one(t, before.Encode, plain), one(t, after.Encode, plain)
		for _, c := range []*seal.Codec{learns, after} {
			require.True(t, proto.Equal(plain, one(t, c.Decode, old)))
			require.True(t, proto.Equal(plain, one(t, c.Decode, fresh)))
		}
		_, err := before.Decode([]*commonpb.Payload{fresh})
		require.EqualError(t, err, `a payload in Temporal is encrypted with the key "k2", which payload_keys (BELAY_PAYLOAD_KEYS) does not name: here are k1`)
		_, err = new(seal.Codec).Decode([]*commonpb.Payload{fresh})
		require.ErrorContains(t, err, `the key "k2", which payload_keys (BELAY_PAYLOAD_KEYS) does not name: there are none here`)
	})

	t.Run("AnotherKeyUnderTheSameNameIsSaid", func(t *testing.T) {
		t.Parallel()
		_, err := codec(t, key("k1", 9)).Decode([]*commonpb.Payload{one(t, codec(t, key("k1", 1)).Encode, plain)})
		require.ErrorContains(t, err, `does not open with the key "k1"`)
	})

	t.Run("WhatWasChangedDoesNotOpen", func(t *testing.T) {
		t.Parallel()
		c := codec(t, key("k1", 1), key("twin", 1))
		sealed := one(t, c.Encode, plain)
		for i := range sealed.GetData() {
			changed, ok := proto.Clone(sealed).(*commonpb.Payload)
			require.True(t, ok)
			changed.Data[i] ^= 1
			_, err := c.Decode([]*commonpb.Payload{changed})
			require.ErrorContains(t, err, `"k1"`, "byte %d", i)
		}
		for n := range sealed.GetData() {
			_, err := c.Decode([]*commonpb.Payload{{Metadata: sealed.GetMetadata(), Data: sealed.GetData()[:n]}})
			require.Error(t, err, "%d bytes", n)
		}
		renamed, ok := proto.Clone(sealed).(*commonpb.Payload)
		require.True(t, ok)
		renamed.Metadata["belay-key"] = []byte("twin")
		_, err := c.Decode([]*commonpb.Payload{renamed})
		require.ErrorContains(t, err, `does not open with the key "twin"`, "the name is bound, though the keys are equal")
	})

	t.Run("GrowsByAFewBytes", func(t *testing.T) {
		t.Parallel()
		// The largest plan is bounded so that it fits into one piece of Temporal's.
		large := &commonpb.Payload{Metadata: plain.GetMetadata(), Data: make([]byte, spec.MaxPlan)}
		sealed := one(t, codec(t, key("k1", 1)).Encode, large)
		require.Less(t, proto.Size(sealed)-proto.Size(large), 200)
		require.Less(t, proto.Size(sealed), 2<<20)
	})

	t.Run("RefusesKeysThatCannotBe", func(t *testing.T) {
		t.Parallel()
		_, err := seal.New(key("k1", 1), key("k1", 2))
		require.ErrorContains(t, err, "k1 is named twice")
		_, err = seal.New(seal.NewKey("k1", []byte("short")))
		require.ErrorContains(t, err, "key k1: want 32 bytes, found 5")
	})
}

func TestRead(t *testing.T) {
	t.Parallel()
	raw := bytes.Repeat([]byte{7}, seal.KeySize)
	secrets := func(t *testing.T, files map[string]string) secret.Provider {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return secret.Dir(dir)
	}

	t.Run("KeysInBothForms", func(t *testing.T) {
		t.Parallel()
		p := secrets(t, map[string]string{"A": base64.StdEncoding.EncodeToString(raw) + "\n", "B": hex.EncodeToString(raw)})
		c, err := seal.Read(t.Context(), p, []seal.Named{{ID: "a", Secret: "A"}, {ID: "b", Secret: "B"}})
		require.NoError(t, err)
		plain := payload(t, marker)
		require.True(t, proto.Equal(plain, one(t, codec(t, seal.NewKey("a", raw)).Decode, one(t, c.Encode, plain))))
		require.True(t, proto.Equal(plain, one(t, c.Decode, one(t, codec(t, seal.NewKey("b", raw)).Encode, plain))))
	})

	t.Run("SaysAllThatIsWrongAndNoKey", func(t *testing.T) {
		t.Parallel()
		p := secrets(t, map[string]string{"SHORT": "c2hvcnQ=", "TEXT": "hunter2 hunter2 hunter2"})
		_, err := seal.Read(t.Context(), p, []seal.Named{{ID: "a", Secret: "SHORT"}, {ID: "b", Secret: "NONE"}, {ID: "c", Secret: "TEXT"}})
		require.ErrorContains(t, err, "key a: secret SHORT: want 32 random bytes in base64 or hexadecimal")
		require.ErrorContains(t, err, "key b: secret NONE: not found")
		require.ErrorContains(t, err, "key c: secret TEXT: want 32 random bytes")
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "c2hvcnQ")
	})

	t.Run("NoneIsNoKey", func(t *testing.T) {
		t.Parallel()
		c, err := seal.Read(t.Context(), secrets(t, nil), nil)
		require.NoError(t, err)
		require.False(t, c.Seals())
	})
}

func TestValidID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"k1": true, "2026-11": true, "a.b_c": true, "": false, "-a": false, "a b": false, "a=b": false, strings.Repeat("x", 64): false,
	} {
		require.Equal(t, want, seal.ValidID(id), id)
	}
}
