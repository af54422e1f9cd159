//go:build !unix

package executor

import "math"

// roomForFiles is how many tasks may run at once by the files that this process
// may open: there is no such limit here.
func roomForFiles() int { return math.MaxInt32 }
