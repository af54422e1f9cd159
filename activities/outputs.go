package activities

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"belay.run/internal/run"
)

// maxOutputs is how many bytes of outputs one step may hand over.
const maxOutputs = 64 << 10

func (a *attempt) outputFile() string { return filepath.Join(a.temp, "output") }

// readOutputs takes what the step wrote to the file named by BELAY_OUTPUT. What
// it declares it must write, what it writes it must declare, and none of it may
// hold a secret.
func (a *attempt) readOutputs() error {
	text, err := readOutputFile(a.outputFile())
	if err != nil {
		return failed(run.TriggerInvalid, "outputs: %v", err)
	}
	outputs, err := parseOutputs(text)
	if err != nil {
		return failed(run.TriggerInvalid, "outputs: %v", err)
	}
	for name, value := range outputs {
		if !slices.Contains(a.in.Step.Outputs, name) {
			return failed(run.TriggerInvalid, "outputs: the step wrote %q, which it does not declare under outputs", name)
		}
		if a.mask.Contains(value) {
			return failed(run.TriggerInvalid, "outputs: %q holds a secret, which would be recorded for all to read", name)
		}
	}
	for _, name := range a.in.Step.Outputs {
		if _, ok := outputs[name]; !ok {
			return failed(run.TriggerInvalid, `outputs: the step declares %q but did not write it; write "%s=VALUE" to the file "$BELAY_OUTPUT"`,
				name, name)
		}
	}
	a.res.Outputs = outputs
	return nil
}

// readOutputFile reads an output file of bounded size. A step may have put
// anything in its place: what is no regular file is refused, and not waited for.
func readOutputFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking at the output file: %w", err)
	case !info.Mode().IsRegular():
		return nil, errors.New("$BELAY_OUTPUT is no regular file any more")
	case info.Size() > maxOutputs:
		return nil, fmt.Errorf("%d bytes; a step may hand over %d", info.Size(), maxOutputs)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the output file: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxOutputs+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("reading the output file: %w", err)
	}
	return text, nil
}

// parseOutputs reads lines "name=value", and "name<<WORD" followed by lines up
// to one that is WORD alone, for values of several lines.
func parseOutputs(text []byte) (map[string]string, error) {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the output file is no valid UTF-8 text")
	}
	outputs := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.TrimSpace(line) == "" {
			continue
		}
		eq, heredoc := strings.Index(line, "="), strings.Index(line, "<<")
		switch {
		case heredoc > 0 && (eq < 0 || heredoc < eq):
			word := line[heredoc+2:]
			end := slices.Index(lines[i+1:], word)
			if word == "" || end < 0 {
				return nil, fmt.Errorf("line %d: %q is not ended by a line %q", i+1, line, word)
			}
			outputs[line[:heredoc]] = strings.Join(lines[i+1:i+1+end], "\n")
			i += end + 1
		case eq > 0:
			outputs[line[:eq]] = line[eq+1:]
		default:
			return nil, fmt.Errorf("line %d: %q is neither name=value nor name<<WORD", i+1, line)
		}
	}
	return outputs, nil
}
