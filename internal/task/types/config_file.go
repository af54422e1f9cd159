package types

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// noteMost bounds a note: an ETag is a header, and so at most headerBytes long.
const noteMost = 128 << 10

// fileTarget is a file. Its note is a hidden file beside it.
type fileTarget struct {
	tools Tools
	path  string
	mode  fs.FileMode
	most  int64
}

func (t *fileTarget) read(context.Context, task.Origin) (state, error) {
	f, err := t.tools.openFile("target", t.path)
	if err != nil {
		return state{}, err
	}
	defer f.close()
	content, err := f.read(fileMost)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, task.Failf(run.TriggerExitCode, "target: %s", err)
	}
	s := state{content: content, found: true}
	if text, err := f.beside().read(noteMost); err == nil {
		s.note = readNote(text)
	}
	return s, nil
}

func (t *fileTarget) write(_ context.Context, _ task.Origin, was state, content []byte) error {
	f, err := t.tools.openFile("target", t.path)
	if err != nil {
		return err
	}
	defer f.close()
	mode := t.mode
	if was.found {
		if info, err := f.folder.Stat(f.name); err == nil {
			mode = info.Mode().Perm()
		}
	}
	if err := f.replace(content, mode); err != nil {
		return task.Failf(run.TriggerExitCode, "target: %s", err)
	}
	return nil
}

func (t *fileTarget) remember(_ context.Context, _ task.Origin, n note) error {
	f, err := t.tools.openFile("target", t.path)
	if err != nil {
		return err
	}
	defer f.close()
	text, err := json.Marshal(n)
	if err == nil {
		err = f.beside().replace(text, modeUsual)
	}
	if err != nil {
		return task.Failf(run.TriggerExitCode, "target: %s", err)
	}
	return nil
}

// beside is the file of a file's note. It lives as long as its folder is open.
func (f *file) beside() *file {
	name := "." + f.name + ".belay-seen"
	return &file{folder: f.folder, name: name, path: f.path + " (its note " + name + ")"}
}

// readNote reads a note. One that cannot be read is none: all that it saves is
// that the source sends what is there already.
func readNote(text []byte) note {
	var n note
	if json.Unmarshal(text, &n) != nil || !isFieldValue(n.ETag) {
		return note{}
	}
	return n
}
