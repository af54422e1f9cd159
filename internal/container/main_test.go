package container_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"belay.run/internal/container"
)

func TestMain(m *testing.M) {
	if code, was := container.RunAsClient(os.Args, os.Stdout, os.Stderr); was {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
