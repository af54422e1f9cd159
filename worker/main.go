// Command worker runs stages and their steps on this machine.
package main

import (
	"os"

	"belay.run/internal/container"
	"belay.run/internal/proc"
	"belay.run/worker/host"
)

func main() {
	if code, was := container.RunAsClient(os.Args, os.Stdout, os.Stderr); was {
		os.Exit(code)
	}
	if code, done := proc.RunAsPID1(); done {
		os.Exit(code)
	}
	os.Exit(host.Main(os.Args[1:], os.Stdout, os.Stderr))
}
