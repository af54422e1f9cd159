package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"belay.run/internal/run"
)

// Names inside a state directory.
const (
	idFile      = "host-id"
	lockFile    = "lock"
	bindingsDir = "bindings"
	stagesDir   = "stages"
	trashDir    = "trash"
	cacheDir    = "cache"
)

// slugMax bounds the readable part of a stage's directory name. The whole path
// stays short, since tools put sockets (108 bytes at most) into it.
const slugMax = 24

// Dirs are the directories of one stage on this host.
type Dirs struct {
	// Root holds the others and is removed with the stage.
	Root string
	// Workspace is what the steps of the stage share: where they start.
	Workspace string
	// Home is HOME of the stage's steps.
	Home string
	// Temp is where attempts have their temporary directories.
	Temp string
}

func dirsAt(root string) Dirs {
	return Dirs{
		Root:      root,
		Workspace: filepath.Join(root, "work"),
		Home:      filepath.Join(root, "home"),
		Temp:      filepath.Join(root, "tmp"),
	}
}

// all lists the directories from the outermost in.
func (d Dirs) all() []string {
	return []string{d.Root, d.Workspace, d.Home, d.Temp}
}

// stageName is the name of a stage's directory and record: what a person can
// read of the node, and a hash that alone decides. Node paths hold brackets,
// commas and percent signs, and may be longer than a file name.
func stageName(runKey, node string) string {
	sum := sha256.Sum256([]byte(runKey + "\x00" + node))
	return run.Slug(node, slugMax) + "-" + hex.EncodeToString(sum[:8])
}
