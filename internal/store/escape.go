package store

import (
	"encoding/hex"
	"path"
	"strings"
)

// How keys become file names. Each name of a key is percent-encoded where file
// systems or people would stumble, so that it never starts with a dot and never
// ends like an object file. One that is too long for a file name is laid out as
// nested directories, each but the last with a bare % at its end. All of it can
// be undone, so a listing needs no index.
const (
	objectSuffix = ".obj"
	more         = "%"
	// maxPiece leaves room for both suffixes in the 255 bytes of a file name.
	maxPiece = 240
)

// dirName is the path of the directory that holds what lies under key.
func dirName(key string) string {
	names := strings.Split(key, "/")
	pieces := make([]string, 0, len(names))
	for _, name := range names {
		s := escape(name)
		if len(s) > maxPiece {
			s = strings.ReplaceAll(s, ".", "%2E") // so that no piece can be "." or ".."
		}
		for len(s) > maxPiece {
			pieces = append(pieces, s[:maxPiece]+more)
			s = s[maxPiece:]
		}
		pieces = append(pieces, s)
	}
	return path.Join(pieces...)
}

// fileName is the path of the file of the object key.
func fileName(key string) string { return dirName(key) + objectSuffix }

// keyOf undoes fileName. It refuses the paths of files that are no objects.
func keyOf(file string) (key string, ok bool) {
	file, ok = strings.CutSuffix(file, objectSuffix)
	if !ok {
		return "", false
	}
	var b strings.Builder
	pieces := strings.Split(file, "/")
	for i, piece := range pieces {
		head, cut := strings.CutSuffix(piece, more)
		b.WriteString(head)
		if !cut && i < len(pieces)-1 {
			b.WriteByte('/')
		}
	}
	key, ok = unescape(b.String())
	return key, ok && checkKey(key) == nil && dirName(key) == file
}

func escape(name string) string {
	var b strings.Builder
	ends := len(name) - len(objectSuffix)
	for i := range len(name) {
		c := name[i]
		if safe(c) && (c != '.' || i > 0 && (i != ends || name[i:] != objectSuffix)) {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func safe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-_.=,[]@+:~", c) >= 0
}

func unescape(s string) (string, bool) {
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(s, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), true
		}
		if len(rest) < 2 {
			return "", false
		}
		c, err := hex.DecodeString(rest[:2])
		if err != nil {
			return "", false
		}
		b.Write(c)
		s = rest[2:]
	}
}
