package spec

import "strings"

// condition freezes a `when`.
func (c *checker) condition(w val[string]) *Condition {
	if !w.given() {
		return nil
	}
	return &Condition{
		Expr:        w.v,
		ReadsStatus: strings.Contains(w.v, "status") || strings.Contains(w.v, "exit_code"),
	}
}
