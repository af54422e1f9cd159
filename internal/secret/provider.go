package secret

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// What can go wrong with a secret. The errors that wrap these name it.
var (
	// ErrNotFound says that no provider knows the secret.
	ErrNotFound = errors.New("not found")
	// ErrTooShort says that masking a value would garble everything else.
	ErrTooShort = errors.New("too short or too plain to be masked")
)

// maxSize is how large a secret may be.
const maxSize = 64 << 10

// Provider is a place where secrets come from. Its methods are safe for
// concurrent use.
type Provider interface {
	// Get reads the secret of that name now; nothing is cached. It is
	// ErrNotFound where the provider works and does not know the name.
	Get(ctx context.Context, name string) (Value, error)
	// Where says in words where the provider looks for a name, such as "the
	// variable BELAY_SECRET_TOKEN of the worker".
	Where(name string) string
}

var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,126}$`)

// checkName refuses names that could mean something else to a file system or a
// command line.
func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("secret %.40q: a name starts with a letter or _ and holds up to 127 letters, digits, _ . and -", name)
	}
	return nil
}

// Chain asks one provider after the other and takes the first answer. One that
// fails ends the search, so that an outage never picks another value.
func Chain(providers ...Provider) Provider { return chain(providers) }

type chain []Provider

func (c chain) Get(ctx context.Context, name string) (Value, error) {
	if err := checkName(name); err != nil {
		return Value{}, err
	}
	for _, p := range c {
		v, err := p.Get(ctx, name)
		if !errors.Is(err, ErrNotFound) {
			return v, err
		}
	}
	return Value{}, notFound(name, c.Where(name))
}

func (c chain) Where(name string) string {
	places := make([]string, len(c))
	for i, p := range c {
		places[i] = p.Where(name)
	}
	if len(places) == 0 {
		return "nowhere: the worker has no provider of secrets"
	}
	return strings.Join(places, ", then ")
}

func notFound(name, where string) error {
	return fmt.Errorf("secret %s: %w: looked in %s; set it there", name, ErrNotFound, where)
}

// valueOf is what a provider found under a name. A NUL byte fits no variable of
// a step, and would end the value in what takes it for the end of a text.
func valueOf(name, where, text string) (Value, error) {
	if strings.ContainsRune(text, 0) {
		return Value{}, fmt.Errorf("secret %s: %s: it holds a NUL byte, which cannot be passed to a step: encode it, as in base64", name, where)
	}
	return NewValue(name, text), nil
}

// Load reads several secrets and says everything that is wrong with them at
// once.
func Load(ctx context.Context, p Provider, names []string) ([]Value, error) {
	values := make([]Value, 0, len(names))
	var errs []error
	for _, name := range names {
		v, err := p.Get(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values = append(values, v)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return values, nil
}

// Open builds the chain of providers that specs describe: "env" for the
// worker's environment, "dir:/path" for a directory of files, and "exec:command
// argument…" for a command, split at spaces.
func Open(specs ...string) (Provider, error) {
	providers := make([]Provider, 0, len(specs))
	for _, s := range specs {
		kind, rest, _ := strings.Cut(s, ":")
		switch {
		case s == "env":
			providers = append(providers, Env())
		case kind == "dir" && strings.HasPrefix(rest, "/"):
			providers = append(providers, Dir(rest))
		case kind == "exec" && len(strings.Fields(rest)) > 0:
			providers = append(providers, Exec(strings.Fields(rest)...))
		default:
			return nil, fmt.Errorf(`provider of secrets %q: want "env", "dir:/path" or "exec:command argument…"`, s)
		}
	}
	return Chain(providers...), nil
}
