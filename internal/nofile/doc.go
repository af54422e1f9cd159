// Package nofile knows how many connections the files allow that a process may
// have open.
package nofile
