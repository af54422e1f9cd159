package doctor_test

import (
	"testing"

	"go.uber.org/goleak"

	"belay.run/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }
