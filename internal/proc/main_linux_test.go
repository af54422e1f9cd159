package proc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// helperEnv makes the test binary another program: see helpers.
const helperEnv = "PROC_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperEnv); name != "" {
		os.Exit(helpers[name]())
	}
	goleak.VerifyTestMain(m)
}
