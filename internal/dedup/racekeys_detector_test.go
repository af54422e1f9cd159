//go:build race

package dedup_test

// raceKeys is how many keys are raced for: under the detector, which sees one
// process at a time, as many as show that the test itself is sound.
const raceKeys = 1_000
