package dedup_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"belay.run/internal/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_MAIN") == "race" {
		os.Exit(racing())
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}
