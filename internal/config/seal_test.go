package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/internal/seal"
	"belay.run/internal/secret"
)

func TestPayloadKeys(t *testing.T) {
	t.Parallel()
	none := environment("HOME", "/home/ci")
	c, err := config.Load([]string{"--payload-keys", "2026-11=KEY_NEW, 2026-05=KEY_OLD", "--http-tokens", "shop=SHOP"}, none)
	require.NoError(t, err)
	require.Equal(t, []seal.Named{{ID: "2026-11", Secret: "KEY_NEW"}, {ID: "2026-05", Secret: "KEY_OLD"}}, c.PayloadKeys)
	require.Equal(t, []string{"KEY_NEW", "KEY_OLD", "SHOP"}, c.OwnSecrets())

	for text, want := range map[string]string{
		"KEY":                       "want ID=SECRET, where SECRET is the name of a secret",
		"=KEY":                      "want ID=SECRET, with an id",
		"a b=KEY":                   "want ID=SECRET, with an id",
		"k1=A,k1=B":                 "key k1 is named twice",
		"k1=aHVudGVyMg+hunter2/x==": "not the key itself",
	} {
		_, err := config.Load([]string{"--payload-keys", text}, none)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "payload_keys", text)
		require.NotContains(t, err.Error(), "hunter2", text)
	}

	_, err = c.PayloadCodec(t.Context(), secret.Dir(t.TempDir()))
	var setting *config.SettingError
	require.ErrorAs(t, err, &setting)
	require.Equal(t, "BELAY_PAYLOAD_KEYS", setting.Setting)
	require.ErrorContains(t, err, "key 2026-05: secret KEY_OLD: not found")
}
