package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"belay.run/internal/spec"
)

// openValidate measures what it takes to read and check a file of 2,000 steps.
func openValidate(context.Context) ([]subject, func() error, error) {
	text := bigFile(2, 1000)
	return []subject{{
		"validate_2000", "ms", "goccy/go-yaml decodes the same file, no checks",
		timed(func() error {
			_, report := spec.Parse("big.yaml", text)
			return report.Err()
		}),
		timed(func() error {
			var doc any
			return yaml.Unmarshal(text, &doc)
		}),
	}}, nothing, nil
}

// timed measures how many milliseconds a function takes.
func timed(do func() error) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) {
		began := time.Now()
		err := do()
		return milliseconds(time.Since(began)), err
	}
}

// bigFile is a pipeline file with everything in it that ordinary steps have.
func bigFile(stages, steps int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\nname: big\ninputs:\n  tag: {type: string, default: v1}\nstages:\n")
	for stage := range stages {
		fmt.Fprintf(&b, "  - name: stage-%d\n    steps:\n", stage)
		for step := range steps {
			fmt.Fprintf(&b, `      - name: step-%d
        env: {TAG: "${{ inputs.tag }}", NUMBER: "%d"}
        run: echo "$TAG $NUMBER"
        timeout: 5m
        retry: {max_attempts: 3, initial_interval: 1s, backoff: 2}
        when: inputs.tag != ""
        outputs: [digest]
`, step, step)
		}
	}
	return []byte(b.String())
}
