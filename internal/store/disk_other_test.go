//go:build !linux

package store_test

import "testing"

func smallDisk(t *testing.T, _ int) string {
	t.Helper()
	t.Skip("SKIP: needs Linux, to mount a small disk")
	return ""
}
