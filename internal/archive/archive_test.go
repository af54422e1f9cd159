package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/archive"
	"belay.run/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree lays files out: a name with a slash at its end is a folder, a text that
// starts with -> is where a link leads to.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			require.NoError(t, os.Symlink(target, file))
		} else if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(file, 0o755))
		} else {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
	}
	return dir
}

// files is the reverse of tree.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(dir, file)
		require.NoError(t, err)
		switch {
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			require.NoError(t, err)
			got[name] = "-> " + target
		case d.IsDir():
			if entries, err := os.ReadDir(file); err == nil && len(entries) == 0 && name != "." {
				got[name+"/"] = ""
			}
		default:
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got[name] = string(text)
		}
		return nil
	}))
	return got
}

func pack(t testing.TB, dir string, o archive.Options) ([]byte, archive.Stats) {
	t.Helper()
	var b bytes.Buffer
	s, err := archive.Pack(t.Context(), &b, dir, o)
	require.NoError(t, err)
	return b.Bytes(), s
}

func unpack(t testing.TB, packed []byte, dir string) archive.Stats {
	t.Helper()
	s, err := archive.Unpack(t.Context(), bytes.NewReader(packed), dir, archive.Limits{})
	require.NoError(t, err)
	return s
}

func TestPackAndUnpackKeepATree(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 200)
	want := map[string]string{
		"a.txt": "a", "dir/sub/b": strings.Repeat("b", 100_000), "empty/": "", ".hidden": "", "ünïcode \n[x]": "u", "not utf-8 \xff": "x",
		long + "/" + long + "/" + long: "long", "link": "-> dir/sub/b", "dir/up": "-> ../a.txt", "dangling": "-> nowhere",
	}
	dir := tree(t, want)
	require.NoError(t, os.Chmod(filepath.Join(dir, "a.txt"), 0o751))
	require.NoError(t, os.Chmod(filepath.Join(dir, "dir"), 0o711))
	packed, s := pack(t, dir, archive.Options{})
	require.Equal(t, int64(100_000+1+1+1+4), s.Bytes)
	require.Empty(t, s.Notes)
	into := filepath.Join(t.TempDir(), "new")
	require.Equal(t, s, unpack(t, packed, into))
	require.Equal(t, want, files(t, into))
	for name, mode := range map[string]fs.FileMode{"a.txt": 0o751, "dir": 0o711 | fs.ModeDir, "dir/sub/b": 0o600} {
		info, err := os.Stat(filepath.Join(into, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode())
	}
}

func TestTheSameTreeGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	want := map[string]string{"b": "2", "a": "1", "c/d": "3", "c/e": "-> d"}
	one, two := tree(t, want), tree(t, want)
	require.NoError(t, os.Chtimes(filepath.Join(two, "a"), time.Unix(1, 0), time.Unix(1, 0)))
	first, _ := pack(t, one, archive.Options{})
	second, _ := pack(t, two, archive.Options{})
	require.Equal(t, first, second)
	require.NoError(t, os.Chmod(filepath.Join(two, "a"), 0o700))
	second, _ = pack(t, two, archive.Options{})
	require.NotEqual(t, first, second, "another mode")
}

func TestExclude(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		".git/x": "", "a.o": "", "src/a.o": "", "src/a.c": "", "node_modules/y": "", "src/node_modules/z": "",
		"dist/app": "", "src/dist": "a file", "docs/a/b/c.md": "", "docs/c.md": "",
	})
	for _, tc := range []struct {
		exclude []string
		want    []string
	}{
		{nil, []string{".git/x", "a.o", "dist/app", "docs/a/b/c.md", "docs/c.md", "node_modules/y", "src/a.c", "src/a.o", "src/dist", "src/node_modules/z"}},
		{[]string{".git", "*.o", "node_modules", "dist/", "docs/**/*.md"}, []string{"docs/a/b/", "src/a.c", "src/dist"}},
		{[]string{"./a.o", "src/*", "docs", "dist"}, []string{".git/x", "node_modules/y", "src/"}},
		{[]string{"**"}, nil},
	} {
		packed, _ := pack(t, dir, archive.Options{Exclude: tc.exclude})
		into := t.TempDir()
		unpack(t, packed, into)
		require.ElementsMatch(t, tc.want, keys(files(t, into)), "%v", tc.exclude)
	}
}

func keys(m map[string]string) []string {
	var k []string
	for name := range m {
		k = append(k, name)
	}
	return k
}

func TestInclude(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"dist/app": "", "dist/lib/a.so": "", "a.txt": "", "deep/b.txt": "", "deep/er/c.txt": "", "deep/er/d.log": "", "other/": "", "x[1]": "",
	})
	for _, tc := range []struct {
		include []string
		exclude []string
		want    []string
	}{
		{[]string{"dist"}, nil, []string{"dist/app", "dist/lib/a.so"}},
		{[]string{"./dist/"}, nil, []string{"dist/app", "dist/lib/a.so"}},
		{[]string{"dist/app"}, nil, []string{"dist/app"}},
		{[]string{"*.txt"}, nil, []string{"a.txt"}},
		{[]string{"**/*.txt"}, nil, []string{"a.txt", "deep/b.txt", "deep/er/c.txt"}},
		{[]string{"deep/**"}, []string{"*.log"}, []string{"deep/b.txt", "deep/er/c.txt"}},
		{[]string{"*/*/*.so", "a.txt"}, nil, []string{"a.txt", "dist/lib/a.so"}},
		{[]string{"."}, []string{"d*"}, []string{"a.txt", "other/", "x[1]"}},
		{[]string{`x\[1\]`}, nil, []string{"x[1]"}},
	} {
		packed, _ := pack(t, dir, archive.Options{Include: tc.include, Exclude: tc.exclude})
		into := t.TempDir()
		unpack(t, packed, into)
		require.ElementsMatch(t, tc.want, keys(files(t, into)), "%v", tc.include)
	}
}

func TestIncludeThatMatchesNothingIsAnError(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"dist/app": "", "file": ""})
	for _, pattern := range []string{"dist/ap", "*.txt", "dist/app/", "dist/app/x", "file/*", "dist/*/**/x"} {
		_, err := archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{Include: []string{"dist/app", pattern}})
		require.ErrorIs(t, err, archive.ErrNoMatch, pattern)
		require.ErrorContains(t, err, `"`+pattern+`" matches nothing`)
	}
	_, err := archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{Include: []string{"dist"}, Exclude: []string{"dist"}})
	require.ErrorIs(t, err, archive.ErrNoMatch)
	for _, pattern := range []string{"", "/etc/passwd", "..", "../x", "a/../../x", "[", "a/[b"} {
		_, err := archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{Include: []string{pattern}})
		require.ErrorContains(t, err, "pattern", pattern)
		_, err = archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{Exclude: []string{pattern}})
		require.ErrorContains(t, err, "pattern", pattern)
	}
}

func TestPackNotesWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"a": "1", "sub/abs": "-> /etc/passwd", "sub/out": "-> ../../x", "sub/winding": "-> b/../../a", "sub/in": "-> ../a",
	})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "sock"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	packed, s := pack(t, dir, archive.Options{})
	require.Equal(t, []string{
		"fifo: a named pipe cannot be packed",
		"sock: a socket cannot be packed",
		"sub/abs: it links to /etc/passwd, which is outside of the folder",
		"sub/out: it links to ../../x, which is outside of the folder",
		"sub/winding: it links to b/../../a, which is outside of the folder",
	}, s.Notes)
	into := t.TempDir()
	unpack(t, packed, into)
	require.Equal(t, map[string]string{"a": "1", "sub/in": "-> ../a"}, files(t, into))

	many := map[string]string{}
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		many[string(c)] = "-> /"
	}
	_, s = pack(t, tree(t, many), archive.Options{})
	require.Len(t, s.Notes, 21)
	require.Equal(t, "and more", s.Notes[20])
}

func TestPackNamesWhatItCannotRead(t *testing.T) {
	dir := tree(t, map[string]string{"ok": "", "sub/private": "x"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "sub/private"), 0))
	for _, open := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "sub"), filepath.Join(dir, "ok")} {
		require.NoError(t, os.Chmod(open, 0o755))
	}
	unprivileged(t, func() {
		_, err := archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{})
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, "sub/private")
	})
	_, err := archive.Pack(t.Context(), &bytes.Buffer{}, filepath.Join(dir, "none"), archive.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestPackLimit(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": strings.Repeat("x", 600), "b": strings.Repeat("x", 600)})
	_, err := archive.Pack(t.Context(), &bytes.Buffer{}, dir, archive.Options{Limit: 1199})
	require.ErrorIs(t, err, archive.ErrTooLarge)
	require.ErrorContains(t, err, "over the limit of 1199 bytes at b, which has 600")
	pack(t, dir, archive.Options{Limit: 1200})
}

func TestPackAndUnpackEndWithTheirContext(t *testing.T) {
	t.Parallel()
	packed, _ := pack(t, tree(t, map[string]string{"a": "x"}), archive.Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	told := errors.New("told to")
	cancel(told)
	_, err := archive.Pack(ctx, &bytes.Buffer{}, t.TempDir(), archive.Options{})
	require.ErrorIs(t, err, told)
	_, err = archive.Unpack(ctx, bytes.NewReader(packed), t.TempDir(), archive.Limits{})
	require.ErrorIs(t, err, told)
}

// unprivileged runs f without root's right to read everything.
func unprivileged(t testing.TB, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, setfsuid(65534))
		defer func() { require.NoError(t, setfsuid(0)) }()
	}
	f()
}

func TestStoreKeepsAFolderOnce(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	want := map[string]string{"a": "1", "b/c": "2"}
	key, s, err := archive.PackToStore(t.Context(), st, "source", tree(t, want), archive.Options{})
	require.NoError(t, err)
	require.Equal(t, int64(2), s.Bytes)
	require.Regexp(t, `^source/[0-9a-f]{64}$`, key)
	before, err := st.Stat(t.Context(), key)
	require.NoError(t, err)
	again, _, err := archive.PackToStore(t.Context(), st, "source", tree(t, want), archive.Options{})
	require.NoError(t, err)
	require.Equal(t, key, again)
	after, err := st.Stat(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, before, after, "it is not written again")
	other, _, err := archive.PackToStore(t.Context(), st, "source", tree(t, map[string]string{"a": "2"}), archive.Options{})
	require.NoError(t, err)
	require.NotEqual(t, key, other)

	into := t.TempDir()
	_, err = archive.UnpackFromStore(t.Context(), st, key, into, archive.Limits{})
	require.NoError(t, err)
	require.Equal(t, want, files(t, into))
	_, err = archive.UnpackFromStore(t.Context(), st, "source/none", into, archive.Limits{})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = archive.PackToStore(t.Context(), st, "source", filepath.Join(into, "none"), archive.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestStoreThatReturnsSomethingElseIsFoundOut(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	key, _, err := archive.PackToStore(t.Context(), st, "source", tree(t, map[string]string{"a": "1"}), archive.Options{})
	require.NoError(t, err)
	packed, _ := pack(t, tree(t, map[string]string{"a": "evil"}), archive.Options{})
	_, err = st.Put(t.Context(), key, bytes.NewReader(packed), 0)
	require.NoError(t, err)
	into := t.TempDir()
	_, err = archive.UnpackFromStore(t.Context(), st, key, into, archive.Limits{})
	require.ErrorIs(t, err, archive.ErrDamaged)
	require.Empty(t, files(t, into))
}

// entry is one of a hand-made archive.
type entry struct {
	name, text, link string
	kind             byte
	mode             int64
	size             int64 // if it is not that of text
}

func handMade(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: max(e.size, int64(len(e.text)))}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.text))
		require.NoError(t, err)
	}
	_ = w.Close() // fails where an entry is cut short on purpose
	require.NoError(t, z.Close())
	return b.Bytes()
}
