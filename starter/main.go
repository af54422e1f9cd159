// Command starter is Belay's command line: it starts runs, follows them, looks
// at them and cancels them.
package main

import (
	"context"
	"os"

	"belay.run/starter/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:]...))
}
