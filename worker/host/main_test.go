package host

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"belay.run/internal/redistest"
)

// asWorker makes the test binary a worker: a test that sends signals needs a
// process to send them to.
const asWorker = "BELAY_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}
