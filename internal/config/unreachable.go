package config

import "fmt"

// UnreachableError says that a server which is needed gives no answer, or not
// the one that is needed.
type UnreachableError struct {
	// Service is "Temporal" or "Redis".
	Service string
	// Address is where it was looked for, without credentials.
	Address string
	// Check is what to look at, in a sentence.
	Check string
	// Err is what happened.
	Err error
}

// Error names the service, the address and what to check.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot use %s at %s: %v (%s)", e.Service, e.Address, e.Err, e.Check)
}

// Unwrap gives what happened.
func (e *UnreachableError) Unwrap() error { return e.Err }

// SettingError says that a setting which only shows where it is used is wrong:
// nothing is to be waited for.
type SettingError struct {
	// Setting is its name.
	Setting string
	// Err is what is wrong with it.
	Err error
}

// Error names the setting.
func (e *SettingError) Error() string { return e.Setting + ": " + e.Err.Error() }

// Unwrap gives what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }
