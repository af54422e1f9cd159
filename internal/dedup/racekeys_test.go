//go:build !race

package dedup_test

// raceKeys is how many keys are raced for.
const raceKeys = 10_000
