package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// subject is something that is measured beside its peer. Both functions take
// one measurement and return it in the unit.
type subject struct {
	name, unit string
	// peer says in words what theirs measures.
	peer         string
	ours, theirs func(ctx context.Context) (float64, error)
}

// Figure is what was measured of a subject over all rounds.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Peer  string  `json:"peer"`
	// PeerValue is the peer's median, in the same unit.
	PeerValue float64 `json:"peer_value"`
	// Ratio is the median of the ratios of each round: what disturbs the
	// machine for a while disturbs both sides of a round.
	Ratio float64 `json:"ratio"`
	// Goal is what it is held to, nil where it is only looked at.
	Goal *Goal `json:"goal,omitempty"`
}

// measure takes both sides of s in turns: one round to warm up, which does not
// count, then rounds more. The sides take turns in going first.
func (s subject) measure(ctx context.Context, rounds int, progress io.Writer) (Figure, error) {
	taken, err := s.sample(ctx, rounds, progress)
	if err != nil {
		return Figure{}, err
	}
	return s.figure(s.name, taken, median), nil
}

// samples are what the rounds came to.
type samples struct{ ours, theirs, ratios []float64 }

// figure is what stands for all rounds.
func (s subject) figure(name string, taken samples, of func([]float64) float64) Figure {
	return Figure{
		Name: name, Value: of(taken.ours), Unit: s.unit, Min: slices.Min(taken.ours), Max: slices.Max(taken.ours),
		Peer: s.peer, PeerValue: of(taken.theirs), Ratio: median(taken.ratios),
	}
}

// sample takes both sides of s in turns, as measure says.
func (s subject) sample(ctx context.Context, rounds int, progress io.Writer) (taken samples, err error) {
	for round := range rounds + 1 {
		our, their, err := s.round(ctx, round%2 == 1)
		if err != nil {
			return samples{}, fmt.Errorf("measuring %s: %w", s.name, err)
		}
		// Nobody need read how it goes on.
		_, _ = fmt.Fprintf(progress, "%s %d/%d: %.4g %s, peer %.4g\n", s.name, round, rounds, our, s.unit, their)
		if round > 0 {
			taken.ours, taken.theirs = append(taken.ours, our), append(taken.theirs, their)
			taken.ratios = append(taken.ratios, our/their)
		}
	}
	return taken, nil
}

func (s subject) round(ctx context.Context, peerFirst bool) (ours, theirs float64, err error) {
	if peerFirst {
		if theirs, err = s.theirs(ctx); err != nil {
			return 0, 0, fmt.Errorf("the peer: %w", err)
		}
	}
	if ours, err = s.ours(ctx); err != nil {
		return 0, 0, err
	}
	if !peerFirst {
		if theirs, err = s.theirs(ctx); err != nil {
			return 0, 0, fmt.Errorf("the peer: %w", err)
		}
	}
	return ours, theirs, nil
}

// p99 of values, of which there is at least one: the smallest that no more than
// one in a hundred exceeds.
func p99(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(99*len(sorted)+99)/100-1]
}

// median of values, of which there is at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
