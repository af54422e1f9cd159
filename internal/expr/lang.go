package expr

import (
	"github.com/expr-lang/expr/conf"
)

// language is what reading and checking needs to know: the functions, and the
// library's settings. It is not safe for use by several goroutines.
type language struct {
	functions functions
	config    *conf.Config
}

// newLanguage tells the library's parser its bounds, and the names of our own
// functions, which it must not take for its built-in ones.
func newLanguage() *language {
	c := conf.CreateNew()
	c.MaxNodes = MaxNodes
	c.DisableIfOperator = true
	fs := newFunctions()
	for name, f := range fs {
		c.Functions[name] = f.declare()
	}
	return &language{functions: fs, config: c}
}
