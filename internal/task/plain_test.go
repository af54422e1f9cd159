package task

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlainTexts(t *testing.T) {
	t.Parallel()
	for with, want := range map[string][]plainText{
		`{}`:                                  {},
		" {\t} \n":                            {},
		`{"url":"http://a/"}`:                 {{"url", "http://a/"}},
		" { \"a\" :\r\"1\" , \"b\":\"\"\n}\n": {{"a", "1"}, {"b", ""}},
		`{"twice":"1","twice":"2"}`:           {{"twice", "1"}, {"twice", "2"}},
		`{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":""}`: {
			{"1", ""}, {"2", ""}, {"3", ""}, {"4", ""}, {"5", ""}, {"6", ""}, {"7", ""}, {"8", ""},
		},
	} {
		got, ok := plainTexts(json.RawMessage(with))
		require.True(t, ok, with)
		require.Equal(t, want, got, with)
	}
	for _, with := range []string{
		``, ` `, `null`, `[]`, `{`, `{"a"`, `{"a":`, `{"a":"b"`, `{"a":"b",}`, `{,}`, `{"a" "b"}`, `{"a":"b"}}`, `{"a":"b"} x`,
		`{"a":1}`, `{"a":["b"]}`, `{"a":"\n"}`, `{"a":"\u00e9"}`, `{"a":"é"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\x7f\"}", "{\"\\u0061\":\"\"}",
		`{"1":"","2":"","3":"","4":"","5":"","6":"","7":"","8":"","9":""}`,
	} {
		_, ok := plainTexts(json.RawMessage(with))
		require.False(t, ok, "%q", with)
	}
}

// FuzzPlainTexts holds that what is read as plain is what a decoder reads.
func FuzzPlainTexts(f *testing.F) {
	f.Add([]byte(`{"url": "http://a/", "method": "GET"}`))
	f.Add([]byte(`{"a": "b", }`))
	f.Fuzz(func(t *testing.T, with []byte) {
		texts, ok := plainTexts(with)
		if !ok {
			return
		}
		got := map[string]string{}
		for _, text := range texts {
			got[text.name] = text.value
		}
		var want map[string]string
		require.NoError(t, json.Unmarshal(with, &want))
		require.Equal(t, want, got)
	})
}
