// Command dev runs Belay with everything it needs in one process.
package main

import (
	"context"
	"os"

	"belay.run/dev/devcmd"
)

func main() {
	os.Exit(devcmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
