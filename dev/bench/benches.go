package main

import (
	"context"
	"io"
	"strings"
)

// all is the name that means every benchmark.
const all = "all"

// bench is a named set of figures.
type bench struct {
	name string
	// open readies what the subjects are measured on; done gives it back.
	open func(ctx context.Context) (subjects []subject, done func() error, err error)
	// tails: what counts is how long the slowest take. Rounds are taken three
	// times as often, and each subject gives a median and a p99.
	tails bool
}

func benches() []bench {
	return []bench{
		{name: "start", open: openStart},
		{name: "pipeline", open: openPipeline},
		{name: "validate", open: openValidate},
		{name: "dedup", open: openDedup},
		{name: "cancel", open: openCancel, tails: true},
		{name: "batch", open: openBatch},
	}
}

func names() string {
	var list []string
	for _, b := range benches() {
		list = append(list, b.name)
	}
	return strings.Join(append(list, all), "|")
}

// run measures all subjects.
func (b bench) run(ctx context.Context, rounds int, progress io.Writer) (figures []Figure, err error) {
	subjects, done, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := done(); err == nil {
			err = closeErr
		}
	}()
	for _, s := range subjects {
		f, err := b.measure(ctx, s, rounds, progress)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func (b bench) measure(ctx context.Context, s subject, rounds int, progress io.Writer) ([]Figure, error) {
	if !b.tails {
		f, err := s.measure(ctx, rounds, progress)
		return []Figure{f}, err
	}
	const times = 3
	taken, err := s.sample(ctx, times*rounds, progress)
	if err != nil {
		return nil, err
	}
	return []Figure{s.figure(s.name+"_p50", taken, median), s.figure(s.name+"_p99", taken, p99)}, nil
}

// nothing to close.
func nothing() error { return nil }
