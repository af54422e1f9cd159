package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Args are what a task is given, held to the parameters of its type: names,
// kinds, which must be there, which values they may have. What a type demands
// beyond that it finds wrong with Wrong, so that a person learns of everything
// at once.
type Args struct {
	params []Param
	// given is by the places of the parameters: they are few, and a map of them
	// costs each task of a million more than to look through them.
	given []given
	errs  []error
}

// given is the value of a parameter, where there is one.
type given struct {
	value any
	there bool
}

// ReadArgs reads what a task is given. What is wrong with it is in Err.
func ReadArgs(params []Param, with json.RawMessage) *Args {
	a := &Args{params: params, given: make([]given, len(params))}
	if err := a.read(with); err != nil {
		a.errs = append(a.errs, err)
		return a
	}
	for i, p := range params {
		if p.Required && !a.given[i].there {
			a.Wrong(p.Name, "it is required: %s", p.Doc)
		}
	}
	return a
}

// read goes through the object by hand, since what reads into a map says nothing
// of a name that is there twice.
func (a *Args) read(with json.RawMessage) error {
	if len(bytes.TrimSpace(with)) == 0 {
		return nil
	}
	if texts, ok := plainTexts(with); ok {
		for _, t := range texts {
			a.set(t.name, t.value)
		}
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(with))
	dec.UseNumber()
	start, err := dec.Token()
	if err != nil {
		return fmt.Errorf("with: it is no JSON: %w", err)
	}
	if start != json.Delim('{') {
		return fmt.Errorf("with: found %s, expected an object of parameters", found(start))
	}
	for dec.More() {
		var value any
		name, err := dec.Token()
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return fmt.Errorf("with: it is no JSON: %w", err)
		}
		a.set(fmt.Sprint(name), value)
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("with: it is no JSON: %w", err)
	}
	// Not dec.More, which takes a second closing brace for an end.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("with: found more after the object of parameters")
	}
	return nil
}

func (a *Args) set(name string, value any) {
	i := a.place(name)
	if i < 0 {
		a.errs = append(a.errs, &ParamError{name, fmt.Sprintf("%.64s: not a parameter%s", name, alternatives(name, names(a.params)))})
		return
	}
	if a.given[i].there {
		a.Wrong(name, "it is given twice")
		return
	}
	read, wrong := readKind(a.params[i], value)
	if wrong != "" {
		a.Wrong(name, "%s", wrong)
	}
	// Also where it is wrong, so that it does not count as missing as well.
	a.given[i] = given{read, true}
}

// place is that of a parameter, -1 where there is none of that name.
func (a *Args) place(name string) int {
	for i := range a.params {
		if a.params[i].Name == name {
			return i
		}
	}
	return -1
}

func names(params []Param) []string {
	all := make([]string, len(params))
	for i, p := range params {
		all[i] = p.Name
	}
	return all
}

// Wrong notes what is wrong with a parameter: what was found, what is expected.
func (a *Args) Wrong(name, format string, args ...any) {
	a.errs = append(a.errs, &ParamError{name, fmt.Sprintf(name+": "+format, args...)})
}

// Err is all that is wrong, nil where nothing is: one error, or a [WrongError].
func (a *Args) Err() error {
	switch len(a.errs) {
	case 0:
		return nil
	case 1:
		return a.errs[0]
	}
	return WrongError(a.errs)
}

// ParamError is what is wrong with one parameter.
type ParamError struct {
	Param string
	text  string
}

// Error begins with the parameter's name.
func (e *ParamError) Error() string { return e.text }

// WrongError is several things that are wrong with what a task is given.
type WrongError []error

// Error is all of them in one line.
func (e WrongError) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives them one by one.
func (e WrongError) Unwrap() []error { return e }

// Has reports whether a parameter is given.
func (a *Args) Has(name string) bool {
	i := a.place(name)
	return i >= 0 && a.given[i].there
}

// Text is a text, or the name of a secret; usual where none is given.
func (a *Args) Text(name, usual string) string { return get(a, name, usual) }

// Number is a whole number within bounds.
func (a *Args) Number(name string, usual, low, high int64) int64 {
	n := get(a, name, usual)
	if n < low || n > high {
		a.Wrong(name, "found %d, expected %d to %d", n, low, high)
		return usual
	}
	return n
}

// Truth is true or false.
func (a *Args) Truth(name string, usual bool) bool { return get(a, name, usual) }

// Duration is a duration within bounds.
func (a *Args) Duration(name string, usual, low, high time.Duration) time.Duration {
	d := get(a, name, usual)
	if d < low || d > high {
		a.Wrong(name, "found %s, expected %s to %s", d, low, high)
		return usual
	}
	return d
}

// Texts is a list of texts.
func (a *Args) Texts(name string, usual ...string) []string { return get(a, name, usual) }

// Table is text by name.
func (a *Args) Table(name string) map[string]string { return get[map[string]string](a, name, nil) }

// get is the value of a parameter. One that is asked for and not among the
// type's parameters is a mistake in the type, which any test of it finds.
func get[T any](a *Args, name string, usual T) T {
	i := a.place(name)
	switch {
	case i < 0:
		a.Wrong(name, "the type asks for it and does not have it among its parameters")
		return usual
	case !a.given[i].there:
		return usual
	}
	if v, ok := a.given[i].value.(T); ok {
		return v
	}
	return usual // it was of the wrong kind, which is noted
}
