// Command dev runs Belay with everything it needs in one process.
package main

import (
	"context"
	"os"

	"belay.run/dev/devcmd"
	"belay.run/internal/container"
)

func main() {
	if code, was := container.RunAsClient(os.Args, os.Stdout, os.Stderr); was {
		os.Exit(code)
	}
	os.Exit(devcmd.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
