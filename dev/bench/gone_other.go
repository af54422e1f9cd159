//go:build !linux

package main

import (
	"context"
	"errors"
)

type sleepers struct{}

func findSleepers(context.Context, string, int) (*sleepers, error) {
	return nil, errors.New("the ends of processes can be seen on Linux only")
}

func (*sleepers) wait(context.Context) error { return nil }

func (*sleepers) close() {}
