package telemetry

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestFaultsAreToldOnce keeps a full disk from filling the terminal, also by
// loggers made of this one.
func TestFaultsAreToldOnce(t *testing.T) {
	t.Parallel()
	enc, err := newEncoder(FormatJSON)
	require.NoError(t, err)
	var errs bytes.Buffer
	log := newLogger(zapcore.NewCore(enc, zapcore.AddSync(fullDisk{}), zap.InfoLevel), &errs)
	for range 3 {
		log.Info("a line")
		log.Named("other").With(zap.Int("n", 1)).Warn("another")
	}
	require.Equal(t, 1, bytes.Count(errs.Bytes(), []byte("no space left on device")), errs.String())
}
