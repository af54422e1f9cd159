package run

import "regexp"

// ScopeWords says what the name of a tenant or a project may be.
const ScopeWords = "letters, digits, dots, dashes and underscores, at most 63"

var scopeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidScope reports whether a tenant or a project may have that name: names are
// parts of every id.
func ValidScope(name string) bool { return scopeName.MatchString(name) }
