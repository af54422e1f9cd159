package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

// TestMatrixLegs holds how a matrix becomes legs, in which order.
func TestMatrixLegs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ matrix, want string }{
		"one key":            {`{os: [linux, darwin]}`, "os=linux os=darwin"},
		"the first is slow":  {`{os: [linux, darwin], go: [1.20, 1.21]}`, "go=1.20,os=linux go=1.21,os=linux go=1.20,os=darwin go=1.21,os=darwin"},
		"texts stay":         {`{v: [1.20, 010, yes, 1e3, 2024-01-01, "a b", a/b]}`, "v=1.20 v=010 v=yes v=1e3 v=2024-01-01 v=a b v=a%2Fb"},
		"exclude":            {`{os: [linux, darwin], go: [1, 2], exclude: [{os: darwin, go: 1}]}`, "go=1,os=linux go=2,os=linux go=2,os=darwin"},
		"exclude in part":    {`{os: [linux, darwin], go: [1, 2], exclude: [{go: 1}]}`, "go=2,os=linux go=2,os=darwin"},
		"include a leg":      {`{os: [linux], include: [{os: darwin}]}`, "os=linux os=darwin"},
		"include extends":    {`{os: [linux, darwin], include: [{os: linux, fast: 1}]}`, "fast=1,os=linux os=darwin"},
		"include for all":    {`{os: [linux, darwin], include: [{color: red}]}`, "color=red,os=linux color=red,os=darwin"},
		"include twice":      {`{os: [linux], include: [{os: linux, a: 1}, {os: linux, b: 2}]}`, "a=1,b=2,os=linux"},
		"include adds alone": {`{include: [{os: linux, cc: gcc}, {os: darwin, cc: clang}]}`, "cc=gcc,os=linux cc=clang,os=darwin"},
		"exclude goes first": {`{os: [linux, darwin], exclude: [{os: darwin}], include: [{os: darwin, x: 1}]}`, "os=linux os=darwin,x=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := parse(t, "name: p\nstages:\n  - {name: a, matrix: "+tc.matrix+", steps: [{name: s, run: x}]}\n")
			plan, err := file.Plan(nil)
			require.NoError(t, err)
			var legs []string
			for _, l := range plan.Stages[0].Matrix.Legs {
				legs = append(legs, l.String())
			}
			require.Equal(t, tc.want, strings.Join(legs, " "))
			require.False(t, plan.Stages[0].Matrix.FailFast)
			require.Zero(t, plan.Stages[0].Matrix.MaxParallel)
		})
	}
}

func TestMatrixSettingsOnEitherSide(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{name: a, matrix: {os: [linux], max_parallel: 2, fail_fast: true}, steps: [{name: s, run: x}]}",
		"{name: a, matrix: {os: [linux]}, max_parallel: 2, fail_fast: true, steps: [{name: s, run: x}]}",
	} {
		plan, err := parse(t, "name: p\nstages:\n  - "+text+"\n").Plan(nil)
		require.NoError(t, err)
		require.Equal(t, 2, plan.Stages[0].Matrix.MaxParallel)
		require.True(t, plan.Stages[0].Matrix.FailFast)
	}
}

// TestCheckWorkingDir holds which folders stay in the workspace.
func TestCheckWorkingDir(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"a", "./a/b", ".", "a/../b", "..a", "a/..b/c", "-x"} {
		require.NoError(t, spec.CheckWorkingDir(dir), dir)
	}
	for _, dir := range []string{"", "/", "/a", "..", "../a", "a/../..", "a/../../b", "~/a", "a\x00b", "a\nb"} {
		require.Error(t, spec.CheckWorkingDir(dir), dir)
	}
}
