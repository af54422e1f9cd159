// Package secret reads secrets where a worker may find them, and keeps their
// values out of whatever people and programs get to see.
package secret

import (
	"fmt"
	"io"
)

// hidden stands wherever a secret's value would.
const hidden = "***"

// Value is a secret. It prints and marshals as ***, also inside of other
// values; only Reveal gives it away. The zero Value is empty.
type Value struct {
	name string
	// A function, so that neither fmt nor reflection nor a test's diff finds
	// the text in a field.
	reveal func() string
}

// NewValue is a secret of that name.
func NewValue(name, text string) Value {
	return Value{name: name, reveal: func() string { return text }}
}

// Name is what the secret is called. It is no secret.
func (v Value) Name() string { return v.name }

// Reveal is the secret itself.
func (v Value) Reveal() string {
	if v.reveal == nil {
		return ""
	}
	return v.reveal()
}

// String is ***.
func (v Value) String() string { return hidden }

// GoString is ***.
func (v Value) GoString() string { return hidden }

// Format writes *** for every verb.
func (v Value) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, hidden) // a fmt.State keeps its errors to itself
}

// MarshalText is ***, which is what JSON and YAML show.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON is "***".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }
