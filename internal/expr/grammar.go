package expr

import "github.com/expr-lang/expr/conf"

// grammar is what the library's parser and checker are told: the bounds, and
// our own functions in the place of all built-in ones.
func grammar() *conf.Config {
	return &conf.Config{
		MaxNodes:          MaxNodes,
		DisableIfOperator: true,
		Functions:         declared,
	}
}
