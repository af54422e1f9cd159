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
}

func benches() []bench {
	return []bench{
		{"start", openStart},
		{"pipeline", openPipeline},
		{"validate", openValidate},
		{"dedup", openDedup},
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
		f, err := s.measure(ctx, rounds, progress)
		if err != nil {
			return nil, err
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// nothing to close.
func nothing() error { return nil }
