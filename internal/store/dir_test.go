package store_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/store"
)

// filesIn lists all files under dir, but no folders.
func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, err := filepath.Rel(dir, file)
			require.NoError(t, err)
			names = append(names, name)
		}
		return err
	}))
	return names
}

func TestDirectoryHoldsReadableNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := open(t, "file://"+dir, nil)
	put(t, st, "logs/r1/build[os=linux]/compile/1", "x")
	put(t, st, "../../escape", "x")
	require.ElementsMatch(t, []string{"logs/r1/build[os=linux]/compile/1.obj", "%2E./%2E./escape.obj"}, filesIn(t, dir))
}

func TestDirectoryIsLeftClean(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := open(t, "file://"+dir, nil)
	_, err := st.Put(t.Context(), "k", strings.NewReader("too large"), 3)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.Empty(t, filesIn(t, dir))
	put(t, st, "a/b/c/d", "x")
	put(t, st, "a/x", "x")
	require.NoError(t, st.Delete(t.Context(), "a/b/c/d"))
	_, err = os.Stat(filepath.Join(dir, "a/b"))
	require.ErrorIs(t, err, os.ErrNotExist, "empty folders stay")
	require.Equal(t, []string{"a/x"}, list(t, st, ""))
}

// What a killed process left behind is removed, what another is writing is not.
func TestDirectorySweepsOldTemporaryFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".tmp"), 0o755))
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": time.Hour} {
		file := filepath.Join(dir, ".tmp", name)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(file, at, at))
	}
	st := open(t, "file://"+dir, nil)
	require.Equal(t, []string{".tmp/new"}, filesIn(t, dir))
	require.Empty(t, list(t, st, ""))
}

func TestDirectoryIgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := open(t, "file://"+dir, nil)
	put(t, st, "k", "x")
	for _, name := range []string{"README", ".hidden.obj", "bad%zz.obj", "%6B.obj", "cut%.obj", ".obj"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.obj"), 0o755))
	require.Equal(t, []string{"k"}, list(t, st, ""))
}

// Nothing is reached through a link that somebody put into the directory.
func TestDirectoryDoesNotFollowLinksOut(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret.obj"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret.obj"), filepath.Join(dir, "file.obj")))
	st := open(t, "file://"+dir, nil)
	_, err := st.Get(t.Context(), "link/secret")
	require.Error(t, err)
	_, err = st.Get(t.Context(), "file")
	require.Error(t, err)
	_, err = st.Put(t.Context(), "link/new", strings.NewReader("x"), 0)
	require.Error(t, err)
	require.Equal(t, []string{"secret.obj"}, filesIn(t, outside))
}

func TestDirectoryTwoOpenersShareObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := open(t, "file://"+dir, nil), open(t, "file://"+dir, nil)
	require.NoError(t, one.Append(t.Context(), "k", 0, []byte("one")))
	require.NoError(t, two.Append(t.Context(), "k", 3, []byte("two")))
	require.ErrorIs(t, one.Append(t.Context(), "k", 3, []byte("x")), store.ErrConflict)
	require.Equal(t, "onetwo", get(t, one, "k"))
}

// endless yields zeros for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestFullDirectory(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 1<<20)
	st := open(t, "file://"+dir, nil)
	put(t, st, "kept", "x")
	_, err := st.Put(t.Context(), "k", endless{}, 100<<20)
	require.ErrorIs(t, err, store.ErrFull)
	require.ErrorContains(t, err, "store "+dir)
	require.NotErrorIs(t, err, store.ErrTooLarge)
	require.Equal(t, []string{"kept"}, list(t, st, ""))
	require.Len(t, filesIn(t, dir), 1, "the temporary file stays")

	off, piece := int64(0), make([]byte, 100_000)
	for err = nil; err == nil; off += int64(len(piece)) {
		err = st.Append(t.Context(), "log", off, piece)
	}
	require.ErrorIs(t, err, store.ErrFull)
	off -= int64(len(piece))
	info, err := st.Stat(t.Context(), "log")
	require.NoError(t, err)
	require.Equal(t, off, info.Size, "a part of the last append stays")
	require.ErrorIs(t, st.Append(t.Context(), "other", 0, piece), store.ErrFull)
	require.ElementsMatch(t, []string{"kept", "log"}, list(t, st, ""), "an object stays whose first append failed")
	require.NoError(t, st.Delete(t.Context(), "kept"))
	require.NoError(t, st.Delete(t.Context(), "log"))
	put(t, st, "again", "there is room")
	require.Equal(t, "there is room", get(t, st, "again"))
}

// TestOpenLate makes no directory by looking, finds it when somebody else makes
// it, and makes it to write.
func TestOpenLate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "store")
	late := func() store.Store {
		st, err := store.OpenLate(t.Context(), "file://"+dir, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, st.Close()) })
		return st
	}
	st := late()
	require.Empty(t, list(t, st, ""))
	require.NoError(t, st.Delete(t.Context(), "k"))
	_, err := st.Stat(t.Context(), "k")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = st.Get(t.Context(), "k")
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = st.ReadAt(t.Context(), "k", make([]byte, 1), 0)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NoDirExists(t, filepath.Dir(dir))
	require.Equal(t, dir, st.String())

	writer := late()
	put(t, writer, "k", "text")
	require.Equal(t, "text", get(t, st, "k"))
	require.Equal(t, []string{"k"}, list(t, st, ""))
	require.NoError(t, st.Append(t.Context(), "log", 0, []byte("x")))
	require.NoError(t, st.Delete(t.Context(), "k"))
	require.Equal(t, []string{"log"}, list(t, late(), ""))
}

func TestReaderErrorsAreNotTheStores(t *testing.T) {
	t.Parallel()
	st := open(t, "file://"+t.TempDir(), nil)
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(os.ErrNotExist) }() // never fails
	_, err := st.Put(t.Context(), "k", r, 0)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, store.ErrNotFound)
}
