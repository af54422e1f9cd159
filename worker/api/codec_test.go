package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"belay.run/internal/config"
	"belay.run/internal/seal"
)

const (
	codecToken = "the-token-of-the-ui-0123"
	uiOrigin   = "https://temporal.example.com"
)

// codecServer is a codec server with one key, and a token where it asks for one.
func codecServer(t *testing.T, token string, loopback bool) (*httptest.Server, *seal.Codec) {
	t.Helper()
	c, err := seal.New(seal.NewKey("k1", bytes.Repeat([]byte{1}, seal.KeySize)))
	require.NoError(t, err)
	cfg := CodecConfig{Codec: c, Origins: []string{uiOrigin}, Loopback: loopback}
	if token != "" {
		cfg.Tokens, err = ReadTokens(t.Context(), secrets{"UI": token}, []config.HTTPToken{{Tenant: config.AnyTenant, Secret: "UI"}}, nil)
		require.NoError(t, err)
	}
	s := httptest.NewServer(NewCodec(cfg))
	t.Cleanup(s.Close)
	return s, c
}

// answered is what came back of a request.
type answered struct {
	StatusCode int
	Header     http.Header
}

// asked is a request to a codec server; headers are pairs.
func asked(t *testing.T, s *httptest.Server, method, what, body string, headers ...string) (answered, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+CodecPath+what, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answered{resp.StatusCode, resp.Header}, string(text)
}

func TestCodecServer(t *testing.T) {
	t.Parallel()
	bearer := []string{"Authorization", "Bearer " + codecToken}
	plain, err := converter.GetDefaultDataConverter().ToPayloads("the number of the account")
	require.NoError(t, err)
	sealedBy := func(t *testing.T, c *seal.Codec) string {
		t.Helper()
		sealed, err := c.Encode(plain.GetPayloads())
		require.NoError(t, err)
		text, err := protojson.Marshal(&commonpb.Payloads{Payloads: sealed})
		require.NoError(t, err)
		return string(text)
	}

	t.Run("AnswersTemporalsOwnClient", func(t *testing.T) {
		t.Parallel()
		s, c := codecServer(t, codecToken, true)
		remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
			Endpoint:      s.URL + strings.TrimSuffix(CodecPath, "/"),
			ModifyRequest: func(r *http.Request) error { r.Header.Set(bearer[0], bearer[1]); return nil },
		})
		sealed, err := remote.Encode(plain.GetPayloads())
		require.NoError(t, err)
		opened, err := c.Decode(sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(plain.GetPayloads()[0], opened[0]))
		require.False(t, proto.Equal(plain.GetPayloads()[0], sealed[0]))
		opened, err = remote.Decode(sealed)
		require.NoError(t, err)
		require.True(t, proto.Equal(plain.GetPayloads()[0], opened[0]))
	})

	t.Run("AsksForAToken", func(t *testing.T) {
		t.Parallel()
		s, c := codecServer(t, codecToken, true)
		for _, wrong := range [][]string{nil, {"Authorization", "Bearer " + codecToken + "0"}, {"Authorization", "Basic dTpw"}} {
			resp, text := asked(t, s, http.MethodPost, "decode", sealedBy(t, c), wrong...)
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode, text)
			require.NotEmpty(t, resp.Header.Get("WWW-Authenticate"))
		}
	})

	t.Run("LetsOnlyTheListedPagesAsk", func(t *testing.T) {
		t.Parallel()
		s, c := codecServer(t, codecToken, true)
		resp, _ := asked(t, s, http.MethodOptions, "decode", "", "Origin", uiOrigin, "Access-Control-Request-Method", "POST")
		require.Equal(t, http.StatusNoContent, resp.StatusCode)
		require.Equal(t, uiOrigin, resp.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, resp.Header.Get("Access-Control-Allow-Headers"), "X-Namespace")
		require.Empty(t, resp.Header.Get("Access-Control-Allow-Credentials"))

		resp, text := asked(t, s, http.MethodPost, "decode", sealedBy(t, c), append(bearer, "Origin", uiOrigin, "X-Namespace", "ci")...)
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		require.Equal(t, uiOrigin, resp.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))

		for _, other := range []string{"https://evil.example", "null", uiOrigin + ".evil.example", "http://temporal.example.com"} {
			resp, text := asked(t, s, http.MethodPost, "decode", sealedBy(t, c), append(bearer, "Origin", other)...)
			require.Equal(t, http.StatusForbidden, resp.StatusCode, text)
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
			resp, _ = asked(t, s, http.MethodOptions, "decode", "", "Origin", other)
			require.Equal(t, http.StatusForbidden, resp.StatusCode)
		}
	})

	t.Run("OnThisMachineNeedsNoToken", func(t *testing.T) {
		t.Parallel()
		s, c := codecServer(t, "", true)
		resp, text := asked(t, s, http.MethodPost, "decode", sealedBy(t, c))
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		var got struct{ Payloads []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		require.Len(t, got.Payloads, 1)
		resp, text = asked(t, s, http.MethodPost, "decode", sealedBy(t, c), "Host", "rebound.example")
		require.Equal(t, http.StatusForbidden, resp.StatusCode, text)
	})

	t.Run("SaysWhatIsWrong", func(t *testing.T) {
		t.Parallel()
		s, _ := codecServer(t, codecToken, true)
		other, err := seal.New(seal.NewKey("k2", bytes.Repeat([]byte{2}, seal.KeySize)))
		require.NoError(t, err)
		resp, text := asked(t, s, http.MethodPost, "decode", sealedBy(t, other), bearer...)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		require.Contains(t, text, `encrypted with the key "k2"`)
		resp, _ = asked(t, s, http.MethodPost, "decode", "{", bearer...)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		resp, _ = asked(t, s, http.MethodGet, "decode", "", bearer...)
		require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
		resp, _ = asked(t, s, http.MethodPost, "x/decode", "{}", bearer...)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		resp, _ = asked(t, s, http.MethodPost, "decode", strings.Repeat(" ", codecMost+1), bearer...)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	})
}
