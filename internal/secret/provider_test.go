package secret_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/secret"
)

func TestEnvHandsOutOnlyItsOwnVariables(t *testing.T) {
	t.Setenv("BELAY_SECRET_TOKEN", "hunter2")
	t.Setenv("TOKEN_OF_THE_WORKER", "private")
	v, err := secret.Env().Get(t.Context(), "TOKEN")
	require.NoError(t, err)
	require.Equal(t, "hunter2", v.Reveal())
	for _, name := range []string{"TOKEN_OF_THE_WORKER", "BELAY_SECRET_TOKEN", "token"} {
		_, err = secret.Env().Get(t.Context(), name)
		require.ErrorIs(t, err, secret.ErrNotFound)
		require.ErrorContains(t, err, "the variable BELAY_SECRET_"+name+" of the worker")
	}
}

// mount lays files out as Kubernetes does: through a link that is swapped.
func mount(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..2026_01_01")
	require.NoError(t, os.Mkdir(data, 0o700))
	require.NoError(t, os.Symlink("..2026_01_01", filepath.Join(dir, "..data")))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(text), 0o600))
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	return dir
}

func TestDirReadsFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n": "hunter2", "two\nlines\n\n": "two\nlines\n", "": "",
		strings.Repeat("x", 64<<10): strings.Repeat("x", 64<<10),
	} {
		v, err := secret.Dir(mount(t, map[string]string{"TOKEN": text})).Get(t.Context(), "TOKEN")
		require.NoError(t, err)
		require.Equal(t, want, v.Reveal())
	}
}

func TestDirRefusesWhatIsNoSecret(t *testing.T) {
	t.Parallel()
	dir := mount(t, map[string]string{"BIG": strings.Repeat("x", 64<<10+1), "NUL": "ab\x00cd"})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "FOLDER"), 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "PIPE"), 0o600))
	for name, message := range map[string]string{"BIG": "larger than 65536 bytes", "NUL": "NUL byte", "FOLDER": "no regular file", "PIPE": "no regular file"} {
		_, err := secret.Dir(dir).Get(t.Context(), name)
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, "secret "+name)
		require.NotErrorIs(t, err, secret.ErrNotFound)
	}
	_, err := secret.Dir(dir).Get(t.Context(), "ABSENT")
	require.ErrorIs(t, err, secret.ErrNotFound)
	require.ErrorContains(t, err, "the file "+filepath.Join(dir, "ABSENT"))
}

func TestProvidersRefuseNamesThatMeanSomethingElse(t *testing.T) {
	t.Parallel()
	dir := secret.Dir(mount(t, map[string]string{"TOKEN": "hunter2"}))
	for _, name := range []string{"", "..", "../TOKEN", "..data/TOKEN", "/etc/passwd", "-n", "a b", "a\x00", strings.Repeat("x", 200)} {
		for _, p := range []secret.Provider{dir, secret.Env(), secret.Exec("/bin/echo"), secret.Chain(dir)} {
			_, err := p.Get(t.Context(), name)
			require.ErrorContains(t, err, "a name starts with")
			require.NotErrorIs(t, err, secret.ErrNotFound)
		}
	}
}

func TestChainTakesTheFirstAnswer(t *testing.T) {
	t.Parallel()
	first := secret.Dir(mount(t, map[string]string{"ONE": "first"}))
	second := secret.Dir(mount(t, map[string]string{"ONE": "second", "TWO": "second"}))
	c := secret.Chain(first, second)
	for name, want := range map[string]string{"ONE": "first", "TWO": "second"} {
		v, err := c.Get(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, want, v.Reveal())
	}
	_, err := c.Get(t.Context(), "THREE")
	require.ErrorIs(t, err, secret.ErrNotFound)
	require.ErrorContains(t, err, first.Where("THREE"))
	require.ErrorContains(t, err, second.Where("THREE"))
	_, err = secret.Chain().Get(t.Context(), "THREE")
	require.ErrorIs(t, err, secret.ErrNotFound)
}

// A provider that is down must not make the next one's value count.
func TestChainStopsAtAFailure(t *testing.T) {
	t.Parallel()
	c := secret.Chain(secret.Exec("/bin/false"), secret.Dir(mount(t, map[string]string{"ONE": "second"})))
	_, err := c.Get(t.Context(), "ONE")
	require.ErrorContains(t, err, "/bin/false")
}

func TestLoadSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	p := secret.Dir(mount(t, map[string]string{"ONE": "1", "TWO": "2"}))
	values, err := secret.Load(t.Context(), p, []string{"TWO", "ONE"})
	require.NoError(t, err)
	require.Equal(t, "2", values[0].Reveal())
	require.Equal(t, "1", values[1].Reveal())
	_, err = secret.Load(t.Context(), p, []string{"ONE", "A", "B"})
	require.ErrorContains(t, err, "secret A")
	require.ErrorContains(t, err, "secret B")
}

func TestOpenReadsSpecs(t *testing.T) {
	t.Parallel()
	p, err := secret.Open("env", "dir:/run/secrets", "exec:vault-get --field value")
	require.NoError(t, err)
	require.Equal(t, "the variable BELAY_SECRET_X of the worker, then the file /run/secrets/X, then the command vault-get --field value",
		p.Where("X"))
	for _, s := range []string{"", "vault", "dir:relative", "exec:", "exec: ", "env:X"} {
		_, err := secret.Open(s)
		require.ErrorContains(t, err, "want")
	}
}

func TestValueHidesItself(t *testing.T) {
	t.Parallel()
	type inner struct {
		v secret.Value
		V secret.Value
	}
	v := secret.NewValue("TOKEN", "hunter2")
	js, err := json.Marshal(map[string]any{"a": v, "b": []any{&v, inner{v, v}}})
	require.NoError(t, err)
	shown := string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb+verb+verb, v, &v, inner{v, v})
	}
	shown += fmt.Sprint(v, errors.New(v.String()), fmt.Errorf("x: %v", v))
	require.Contains(t, shown, "***")
	require.NotContains(t, shown, "hunter2")
	require.NotContains(t, shown, "68756e74657232")
	require.Equal(t, "hunter2", v.Reveal())
	require.Empty(t, secret.Value{}.Reveal())
}

func TestReserve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"OWN", "OTHER"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("the value of "+name), 0o600))
	}
	p := secret.Reserve(secret.Dir(dir), "OWN")
	v, err := p.Get(t.Context(), "OTHER")
	require.NoError(t, err)
	require.Equal(t, "the value of OTHER", v.Reveal())
	_, err = p.Get(t.Context(), "OWN")
	require.ErrorContains(t, err, "secret OWN: it is the worker's own")
	require.NotErrorIs(t, err, secret.ErrNotFound, "no other place is asked")
}
