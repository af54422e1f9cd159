// Package archive packs folders into tar.gz files, the same folder always into
// the same bytes, and unpacks such files without trusting them.
package archive

import (
	"errors"
)

// What can go wrong with an archive. The errors that wrap these name the file.
var (
	// ErrNoMatch says that a file that was asked for is not there.
	ErrNoMatch = errors.New("matches nothing")
	// ErrTooLarge says that a folder or an archive is over its limit.
	ErrTooLarge = errors.New("over the limit")
	// ErrUnsafe says that an archive would write or point outside of its folder.
	ErrUnsafe = errors.New("unsafe")
	// ErrPartial says that a folder is left with a part of an archive in it.
	ErrPartial = errors.New("the folder is left with a part of the archive in it")
)

// Options says what of a folder is packed. Patterns are relative to it, with
// slashes: * and ? stay inside a name, ** stands for any number of folders.
type Options struct {
	// Include names what is packed, folders with all that is in them. Each
	// must match something. Empty means everything.
	Include []string
	// Exclude leaves things out, folders with all that is in them. A pattern
	// without a slash matches a name at any depth; one that ends in a slash
	// matches folders only.
	Exclude []string
	// Limit is how many bytes the files may hold together; 0 means any.
	Limit int64
}

// Stats says what was packed or unpacked.
type Stats struct {
	Files int
	// Bytes is what the files hold.
	Bytes int64
	// Notes name what was left out because it cannot be packed: sockets,
	// devices, links that lead out of the folder. At most 20 are kept, and one that says that there are more.
	Notes []string
}

// Limits bounds what an archive may unpack to.
type Limits struct {
	// Bytes is what the files may hold together. Defaults to 16 GiB.
	Bytes int64
	// Files is how many files, folders and links there may be. Defaults to
	// one million.
	Files int
}
