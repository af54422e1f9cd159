package config

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"belay.run/internal/seal"
	"belay.run/internal/secret"
)

const payloadKeysEnv = "BELAY_PAYLOAD_KEYS"

func sealSettings() []Setting {
	return []Setting{
		{
			Name: "payload_keys", Env: payloadKeysEnv, List: true,
			Help: "Keys that encrypt what Temporal keeps, separated by commas, as ID=SECRET: the secret of that name holds 32 bytes in base64 or hexadecimal. The first encrypts, all decrypt. Empty: nothing is encrypted.",
			set:  setPayloadKeys,
		},
		{
			Name: "codec_tokens", Env: "BELAY_CODEC_TOKENS", List: true,
			Help: "Who may have payloads encrypted and decrypted at /api/v1/codec, separated by commas: names of secrets, each a bearer token. Empty: nobody, or whoever is on this machine where http_address is of it alone and codec_origins names a page.",
			set:  setCodecTokens,
		},
		{
			Name: "codec_origins", Env: "BELAY_CODEC_ORIGINS", List: true,
			Help: "Origins of the web pages that may ask /api/v1/codec, separated by commas: that of Temporal's UI, as https://temporal.example.com.",
			set:  setCodecOrigins,
		},
	}
}

func setPayloadKeys(c *Config, v value) error {
	for _, item := range v.items() {
		id, name, _ := strings.Cut(item, "=")
		// What stands there may be a key by mistake, and is not shown.
		switch {
		case !seal.ValidID(id):
			return errors.New("want ID=SECRET, with an id of letters, digits, dots, dashes and underscores, at most 63")
		case !secretPattern.MatchString(name):
			return errors.New("want ID=SECRET, where SECRET is the name of a secret, not the key itself")
		}
		for _, k := range c.PayloadKeys {
			if k.ID == id {
				return fmt.Errorf("key %s is named twice", id)
			}
		}
		c.PayloadKeys = append(c.PayloadKeys, seal.Named{ID: id, Secret: name})
	}
	return nil
}

func setCodecTokens(c *Config, v value) error {
	for _, name := range v.items() {
		if !secretPattern.MatchString(name) {
			return errors.New("want the name of a secret, not the token itself")
		}
		c.CodecTokens = append(c.CodecTokens, name)
	}
	return nil
}

func setCodecOrigins(c *Config, v value) error {
	for _, origin := range v.items() {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return fmt.Errorf("%q: want an origin as browsers send it, such as https://temporal.example.com or http://127.0.0.1:8233", origin)
		}
		c.CodecOrigins = append(c.CodecOrigins, strings.ToLower(origin))
	}
	return nil
}

// OwnSecrets are the names of the secrets that are the worker's own, and nobody
// else's: of its keys and of the tokens that it asks for.
func (c *Config) OwnSecrets() []string {
	var names []string
	for _, k := range c.PayloadKeys {
		names = append(names, k.Secret)
	}
	for _, t := range c.HTTPTokens {
		names = append(names, t.Secret)
	}
	return append(names, c.CodecTokens...)
}

// PayloadCodec reads the payload keys. Without any, it is the codec that encrypts
// nothing.
func (c *Config) PayloadCodec(ctx context.Context, secrets secret.Provider) (*seal.Codec, error) {
	codec, err := seal.Read(ctx, secrets, c.PayloadKeys)
	if err != nil {
		return nil, &SettingError{payloadKeysEnv, err}
	}
	return codec, nil
}
