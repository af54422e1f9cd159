package config

import (
	"context"
	"errors"
	"fmt"
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
	return names
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
