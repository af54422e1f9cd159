//go:build !linux

package e2e_test

import "testing"

func smallDisk(t *testing.T, _ string) {
	t.Helper()
	t.Skip("SKIP: needs Linux, to mount a small disk")
}

func freeze(t *testing.T, _ string) func() {
	t.Helper()
	return func() {}
}
