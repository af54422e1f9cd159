//go:build !linux

package archive_test

import "errors"

func setfsuid(int) error { return errors.New("run this test as an ordinary user") }
