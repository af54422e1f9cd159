package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/starter/cli"
)

func TestBatchRefusesBadLinesBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := file(t, "tasks.jsonl", `{"type":"noop"}
{"type":"nop"}
{"type":"noop","id":"a"}
{"type":"noop","id":"a"}
`)
	r := b.exec(t, "batch", "run", path)
	require.Equal(t, cli.ExitUsage, r.code)
	require.Equal(t, `belay batch run: 2 bad lines: nothing was started
  `+path+`:2: type "nop": not known; did you mean noop?
  `+path+`:4: id "a": line 3 has it already
`, r.err)
	for info, err := range b.store.List(t.Context(), "") {
		require.NoError(t, err)
		require.Fail(t, "left in the store", info.Key)
	}
	type doc struct {
		Error struct {
			Code    int
			Message string
		}
	}
	parsed := oneDocument[doc](t, b.exec(t, "batch", "run", path, "-o", "json").out)
	require.Equal(t, cli.ExitUsage, parsed.Error.Code)
	require.Contains(t, parsed.Error.Message, "tasks.jsonl:4: ")
}

func TestBatchRefusesBadFlags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	path := file(t, "tasks.jsonl", `{"type":"noop"}`)
	for flags, want := range map[string]string{
		"--concurrency -1":       "--concurrency -1: want 1 to 100000",
		"--rate -2":              "--rate -2: want 0.001 to 1000000",
		"--chunk 0":              "--chunk 0: want 1 to 1000",
		"--chunk 1001":           "--chunk 1001: want 1 to 1000",
		"--detach --out x":       "leave out --detach",
		"--out /no/such/dir/x":   "there is no folder /no/such/dir",
		"--tenant a/b":           `--tenant "a/b"`,
		"--request-id=":          "--request-id must have 1 to 200 bytes",
		"--notify-secret X":      "--notify-secret is for --notify",
		"--notify http://":       "want an address such as https://host/path",
		"--notify http://u:p@h/": "a password has no place in an address",
		"--notify https://h/ --notify-secret A --notify-secret B": "an address takes one",
	} {
		r := b.exec(t, append([]string{"batch", "run", path}, strings.Fields(flags)...)...)
		require.Equal(t, cli.ExitUsage, r.code, flags)
		require.Contains(t, r.err, want, flags)
	}
	require.Equal(t, cli.ExitUsage, b.exec(t, "batch", "run", "/no/such/file").code)
	require.Equal(t, cli.ExitUsage, b.exec(t, "batch", "status", "nobody").code)
	require.Equal(t, cli.ExitUsage, b.exec(t, "batch", "sttus", "x").code)
}
