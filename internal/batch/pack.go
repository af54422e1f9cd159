package batch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"

	"golang.org/x/sync/errgroup"

	"belay.run/internal/store"
)

const (
	// maxLineErrors is how many bad lines are told of one by one.
	maxLineErrors = 50
	// putsAtOnce is how many chunks are on their way to the store at once.
	putsAtOnce = 4
)

// LineError is what is wrong with a line of the file.
type LineError struct {
	// Line counts from 1.
	Line    int
	Message string
}

// InvalidError says which lines of a file are bad: nothing of it may start.
type InvalidError struct {
	// Errors are the first of them, Count is how many there are.
	Errors []LineError
	Count  int
}

// Error is the first of the bad lines, and how many there are.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("line %d: %s (%d bad lines)", e.Errors[0].Line, e.Errors[0].Message, e.Count)
}

// TooLargeError says that a file is more than a batch may be.
type TooLargeError struct{ Message string }

// Error says what is too large.
func (e *TooLargeError) Error() string { return e.Message }

// Packed is what a file came to.
type Packed struct {
	Total int
	// Types counts the tasks of each type.
	Types map[string]int
}

// Pack checks a file of tasks, a JSON object a line, and puts it into a folder
// of the store in chunks of so many. Of the file it holds little more than a
// chunk at a time, and a few bytes a task to tell ids apart. Where a line is bad
// it checks the others too, leaves nothing in the store, and returns an
// *InvalidError.
func Pack(ctx context.Context, r io.Reader, st store.Store, folder string, chunkSize int, types Preparer) (Packed, error) {
	p := &packer{
		st: st, folder: folder, size: chunkSize, types: types,
		packed: Packed{Types: map[string]int{}}, ids: map[uint64]int32{}, seed: maphash.MakeSeed(),
	}
	p.puts, p.ctx = errgroup.WithContext(ctx)
	p.puts.SetLimit(putsAtOnce)
	err := errors.Join(p.read(r), p.puts.Wait())
	if err == nil && p.bad.Count > 0 {
		err = &p.bad
	}
	if err == nil && p.packed.Total == 0 {
		err = &InvalidError{Count: 1, Errors: []LineError{{Line: 1, Message: "there is no task: expected a JSON object a line"}}}
	}
	if err != nil {
		return p.packed, errors.Join(err, Remove(context.WithoutCancel(ctx), st, folder))
	}
	return p.packed, nil
}

// Remove takes what a batch has in the store away.
func Remove(ctx context.Context, st store.Store, folder string) error {
	if err := st.Delete(ctx, folder); err != nil {
		return fmt.Errorf("removing the batch's folder: %w", err)
	}
	return nil
}

// packer is the state of Pack.
type packer struct {
	ctx    context.Context //nolint:containedctx // lives as long as one Pack
	st     store.Store
	folder string
	size   int
	types  Preparer
	puts   *errgroup.Group

	packed Packed
	bad    InvalidError
	chunk  bytes.Buffer
	inIt   int
	// ids has the line of each id, by a hash of it. That two of a million ids
	// share one happens once in thirty million files, and not again when the
	// same file is tried again: the seed is another.
	ids  map[uint64]int32
	seed maphash.Seed
}

func (p *packer) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, MaxLine)
	for number := 1; ; number++ {
		text, tooLong, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading line %d: %w", number, err)
		}
		over := errors.Is(err, io.EOF)
		switch {
		case tooLong:
			p.wrong(number, fmt.Sprintf("is longer than %d bytes", MaxLine-1))
		case len(bytes.TrimSpace(text)) > 0:
			if err := p.line(text, number); err != nil {
				return err
			}
		}
		if over {
			return p.put()
		}
		if p.ctx.Err() != nil {
			return context.Cause(p.ctx)
		}
	}
}

// readLine reads to the end of a line; what does not fit is left out. The last
// one comes with io.EOF.
func readLine(in *bufio.Reader) (text []byte, tooLong bool, err error) {
	text, err = in.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = in.ReadSlice('\n')
	}
	return text, tooLong, err
}

// line checks a line and adds it to the chunk.
func (p *packer) line(text []byte, number int) error {
	t, err := parseLine(text, number)
	if err == nil {
		_, err = p.types.Prepare(t)
	}
	if err == nil {
		err = p.unique(t.ID, number)
	}
	if err != nil {
		p.wrong(number, err.Error())
		return nil
	}
	if p.packed.Total == MaxTasks {
		return &TooLargeError{fmt.Sprintf("line %d: a batch has at most %d tasks", number, MaxTasks)}
	}
	p.packed.Total++
	p.packed.Types[t.Type]++
	if p.bad.Count > 0 {
		return nil // nothing will start: the rest is only checked
	}
	encoded, err := json.Marshal(storedTask{Task: t, Line: number})
	if err != nil {
		return fmt.Errorf("writing the task of line %d: %w", number, err)
	}
	p.chunk.Write(encoded)
	p.chunk.WriteByte('\n')
	if p.chunk.Len() > MaxChunkBytes {
		return &TooLargeError{fmt.Sprintf("the lines up to line %d are too long for chunks of %d: try smaller chunks", number, p.size)}
	}
	if p.inIt++; p.inIt == p.size {
		return p.put()
	}
	return nil
}

// unique refuses the second of two tasks with one id.
func (p *packer) unique(id string, number int) error {
	hash := maphash.String(p.seed, id)
	if first, taken := p.ids[hash]; taken {
		return fmt.Errorf("id %q: line %d has it already", id, first)
	}
	p.ids[hash] = int32(number)
	return nil
}

func (p *packer) wrong(number int, message string) {
	p.bad.Count++
	if len(p.bad.Errors) < maxLineErrors {
		p.bad.Errors = append(p.bad.Errors, LineError{Line: number, Message: message})
	}
}

// put sends the chunk to the store, if it has anything in it.
func (p *packer) put() error {
	if p.inIt == 0 || p.bad.Count > 0 {
		return nil
	}
	text := bytes.Clone(p.chunk.Bytes())
	key := tasksKey(p.folder, (p.packed.Total-1)/p.size)
	p.chunk.Reset()
	p.inIt = 0
	p.puts.Go(func() error {
		_, err := p.st.Put(p.ctx, key, bytes.NewReader(text), 0)
		return err
	})
	return nil
}
