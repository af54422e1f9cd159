package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/archive"
)

func TestUnpackRefusesWhatLeadsOut(t *testing.T) {
	t.Parallel()
	ok := entry{name: "ok", text: "x"}
	for name, entries := range map[string][]entry{
		"absolute":            {{name: "/tmp/evil", text: "x"}},
		"dots":                {{name: "../evil", text: "x"}},
		"dots inside":         {{name: "a/../../evil", text: "x"}},
		"dots at the end":     {{name: "a/..", kind: tar.TypeDir}},
		"absolute link":       {{name: "l", link: "/etc", kind: tar.TypeSymlink}},
		"link up":             {{name: "l", link: "..", kind: tar.TypeSymlink}},
		"link up from below":  {{name: "a/l", link: "../../x", kind: tar.TypeSymlink}},
		"empty link":          {{name: "l", kind: tar.TypeSymlink}},
		"link through a link": {{name: "d/l", link: "..", kind: tar.TypeSymlink}, {name: "m", link: "d/l/../..", kind: tar.TypeSymlink}},
		"file through a link": {{name: "d", kind: tar.TypeDir}, {name: "l", link: "d", kind: tar.TypeSymlink}, {name: "l/x", text: "x"}},
		"folder over a link":  {{name: "d", kind: tar.TypeDir}, {name: "l", link: "d", kind: tar.TypeSymlink}, {name: "l", kind: tar.TypeDir}},
		"hard link":           {ok, {name: "h", link: "ok", kind: tar.TypeLink}},
		"hard link out":       {{name: "h", link: "/etc/passwd", kind: tar.TypeLink}},
		"device":              {{name: "n", kind: tar.TypeChar}},
		"named pipe":          {{name: "n", kind: tar.TypeFifo}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			into := filepath.Join(top, "in")
			_, err := archive.Unpack(t.Context(), bytes.NewReader(handMade(t, append([]entry{ok}, entries...)...)), into, archive.Limits{})
			require.ErrorIs(t, err, archive.ErrUnsafe)
			require.ErrorContains(t, err, `"`+entries[len(entries)-1].name)
			require.NotErrorIs(t, err, archive.ErrPartial)
			require.Equal(t, map[string]string{"in/": ""}, files(t, top), "nothing is left, in the folder or beside it")
		})
	}
}

func TestUnpackReplacesFilesButNotFolders(t *testing.T) {
	t.Parallel()
	into := tree(t, map[string]string{"file": "old", "link": "-> elsewhere", "dir/kept": "x"})
	unpack(t, handMade(t,
		entry{name: "file", text: "new", mode: 0o644}, entry{name: "link", text: "a file now", mode: 0o644},
		entry{name: "dir/more", link: "kept", kind: tar.TypeSymlink}), into)
	require.Equal(t, map[string]string{"file": "new", "link": "a file now", "dir/kept": "x", "dir/more": "-> kept"}, files(t, into))

	for _, e := range []entry{{name: "dir", text: "x"}, {name: "dir", link: "file", kind: tar.TypeSymlink}, {name: "file", kind: tar.TypeDir}, {name: "file/x", text: "x"}} {
		_, err := archive.Unpack(t.Context(), bytes.NewReader(handMade(t, e)), into, archive.Limits{})
		require.ErrorContains(t, err, "where the archive has a")
		require.ErrorIs(t, err, archive.ErrPartial)
	}
	require.Equal(t, "x", files(t, into)["dir/kept"])
}

// A link that was in the folder before leads nothing out of it either.
func TestUnpackDoesNotFollowLinksThatWereThere(t *testing.T) {
	t.Parallel()
	outside := tree(t, map[string]string{"target": "untouched"})
	into := tree(t, map[string]string{"d": "-> " + outside, "f": "-> " + filepath.Join(outside, "target")})
	_, err := archive.Unpack(t.Context(), bytes.NewReader(handMade(t, entry{name: "d/target", text: "evil"})), into, archive.Limits{})
	require.ErrorIs(t, err, archive.ErrUnsafe)
	unpack(t, handMade(t, entry{name: "f", text: "a file now", mode: 0o600}), into)
	require.Equal(t, map[string]string{"target": "untouched"}, files(t, outside))
	require.Equal(t, "a file now", files(t, into)["f"])
}

func TestUnpackStripsSpecialModes(t *testing.T) {
	t.Parallel()
	into := t.TempDir()
	unpack(t, handMade(t, entry{name: "f", text: "x", mode: 0o6755}, entry{name: "d", kind: tar.TypeDir, mode: 0o1000}, entry{name: "d/x", text: "x"}), into)
	info, err := os.Stat(filepath.Join(into, "f"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), info.Mode())
	info, err = os.Stat(filepath.Join(into, "d"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|0o700, info.Mode(), "its owner can always remove it")
}

func TestUnpackLimits(t *testing.T) {
	t.Parallel()
	packed := handMade(t, entry{name: "a", text: strings.Repeat("x", 600)}, entry{name: "b", text: strings.Repeat("x", 600)})
	for _, l := range []archive.Limits{{Bytes: 1199}, {Files: 1}} {
		into := t.TempDir()
		_, err := archive.Unpack(t.Context(), bytes.NewReader(packed), into, l)
		require.ErrorIs(t, err, archive.ErrTooLarge)
		require.Empty(t, files(t, into))
	}
	_, err := archive.Unpack(t.Context(), bytes.NewReader(packed), t.TempDir(), archive.Limits{Bytes: 1200, Files: 2})
	require.NoError(t, err)
}

// zeros zips n bytes of nothing, after what is given.
func zeros(t testing.TB, start []byte, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(start)
	require.NoError(t, err)
	for range n >> 20 {
		_, err := z.Write(make([]byte, 1<<20))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestUnpackBoundsBombs(t *testing.T) {
	t.Parallel()
	limits := archive.Limits{Bytes: 1 << 20, Files: 10}
	_, err := archive.Unpack(t.Context(), bytes.NewReader(zeros(t, nil, 4<<20)), t.TempDir(), limits)
	require.ErrorIs(t, err, archive.ErrTooLarge, "after the end of the archive")
	_, err = archive.Unpack(t.Context(), bytes.NewReader(handMade(t, entry{name: "a", size: 1 << 40})), t.TempDir(), limits)
	require.ErrorIs(t, err, archive.ErrTooLarge, "a size that is only said")
	_, err = archive.Unpack(t.Context(), bytes.NewReader(handMade(t, entry{name: "a", text: "x", size: 1000})), t.TempDir(), limits)
	require.Error(t, err, "a size that is not true")
}

func TestUnpackRefusesDamage(t *testing.T) {
	t.Parallel()
	packed := handMade(t, entry{name: "a", text: strings.Repeat("abc", 1000), mode: 0o644})
	into := t.TempDir()
	for cut := 0; cut < len(packed); cut += 1 + len(packed)/50 {
		_, err := archive.Unpack(t.Context(), bytes.NewReader(packed[:cut]), into, archive.Limits{})
		require.Error(t, err, "cut at %d of %d", cut, len(packed))
		require.Empty(t, files(t, into))
	}
	broken := bytes.Clone(packed)
	broken[len(broken)-6] ^= 1 // in the checksum
	_, err := archive.Unpack(t.Context(), bytes.NewReader(broken), t.TempDir(), archive.Limits{})
	require.ErrorIs(t, err, gzip.ErrChecksum)
	for _, text := range []string{"", "plain text", strings.Repeat("x", 10_000)} {
		_, err := archive.Unpack(t.Context(), strings.NewReader(text), t.TempDir(), archive.Limits{})
		require.Error(t, err)
	}
}

// FuzzUnpack checks that no archive writes outside of its folder, or leaves a
// link in it that points there.
func FuzzUnpack(f *testing.F) {
	f.Add("a", "", byte(tar.TypeReg), "b/c", "../a", byte(tar.TypeSymlink), "b/c/d", byte(tar.TypeReg))
	f.Add("l", "..", byte(tar.TypeSymlink), "l/x", "", byte(tar.TypeReg), "/l", byte(tar.TypeDir))
	f.Add("d/l", "../d", byte(tar.TypeSymlink), "m", "d/l/..", byte(tar.TypeSymlink), "m/../x", byte(tar.TypeReg))
	f.Fuzz(func(t *testing.T, n1, l1 string, k1 byte, n2, l2 string, k2 byte, n3 string, k3 byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, h := range []*tar.Header{{Name: n1, Linkname: l1, Typeflag: k1}, {Name: n2, Linkname: l2, Typeflag: k2}, {Name: n3, Typeflag: k3}} {
			if w.WriteHeader(h) != nil {
				t.Skip()
			}
		}
		require.NoError(t, w.Close())
		require.NoError(t, z.Close())
		top := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(top, "outside"), []byte("untouched"), 0o600))
		into := filepath.Join(top, "in")
		_, _ = archive.Unpack(t.Context(), &b, into, archive.Limits{}) // either way is fine
		entries, err := os.ReadDir(top)
		require.NoError(t, err)
		require.Len(t, entries, 2)
		text, err := os.ReadFile(filepath.Join(top, "outside"))
		require.NoError(t, err)
		require.Equal(t, "untouched", string(text))
		require.NoError(t, filepath.WalkDir(into, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.Type() != fs.ModeSymlink {
				return err
			}
			// Dangling links lead nowhere; loops neither.
			if leads, err := filepath.EvalSymlinks(file); err == nil {
				require.True(t, leads == into || strings.HasPrefix(leads, into+"/"), "%s leads to %s", file, leads)
			}
			return nil
		}))
	})
}
