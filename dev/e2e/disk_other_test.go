//go:build !linux

package e2e_test

import (
	"errors"
	"testing"
)

func smallDisk(t *testing.T, _ string) {
	t.Helper()
	t.Skip("SKIP: needs Linux, to mount a small disk")
}

func mountDisk(*testing.T, string) error { return errors.ErrUnsupported }

func freeze(t *testing.T, _ string) func() {
	t.Helper()
	return func() {}
}
