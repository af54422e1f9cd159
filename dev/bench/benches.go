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
	// whole measures in the place of all this what is no sequence of subjects, and
	// notes it in the report.
	whole func(ctx context.Context, r *Report, progress io.Writer) error
}

func benches() []bench {
	return []bench{
		{name: "start", open: openStart},
		{name: "pipeline", open: openPipeline},
		{name: "validate", open: openValidate},
		{name: "dedup", open: openDedup},
		{name: "cancel", open: openCancel, tails: true},
		{name: "batch", open: openBatch},
		{name: "light", whole: measureLight},
	}
}

func names() string {
	var list []string
	for _, b := range benches() {
		list = append(list, b.name)
	}
	return strings.Join(append(list, all), "|")
}

// run measures all subjects, and notes them in the report.
func (b bench) run(ctx context.Context, r *Report, progress io.Writer) (err error) {
	if b.whole != nil {
		return b.whole(ctx, r, progress)
	}
	subjects, done, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := done(); err == nil {
			err = closeErr
		}
	}()
	for _, s := range subjects {
		f, err := b.measure(ctx, s, r.Rounds, progress)
		if err != nil {
			return err
		}
		r.Figures = append(r.Figures, f...)
	}
	return nil
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
