//go:build !unix

package nofile

import "math"

// Room is how many connections this process may have open at once by the files
// that it may open: there is no such limit here.
func Room() int { return math.MaxInt32 }
