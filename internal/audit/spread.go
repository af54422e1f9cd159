package audit

import (
	"math/bits"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A spread is how durations are spread, in buckets of which four double: what is
// read from it is right within a fifth.
type spread struct {
	buckets [bucketCount]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

const (
	bucketCount = 4 * 62 // the longest Duration is in the last
	sumField    = "sum"
)

func (s *spread) add(d time.Duration) {
	s.buckets[bucketOf(d)].Add(1)
	s.sum.Add(int64(d))
}

// bucketOf tells durations apart by the highest bit and the two below it.
func bucketOf(d time.Duration) int {
	if d < 4 {
		return int(max(d, 0))
	}
	shift := bits.Len64(uint64(d)) - 3
	return shift*4 + int(d>>shift) // d>>shift is 4 to 7
}

// bucketEnd is the longest duration of a bucket.
func bucketEnd(i int) time.Duration {
	if i < 8 {
		return time.Duration(i)
	}
	shift := i/4 - 1
	return time.Duration(i%4+5)<<shift - 1
}

// take empties the spread into fields of the counts: names and numbers.
func (s *spread) take(tier string) []any {
	var fields []any
	for i := range s.buckets {
		if n := s.buckets[i].Swap(0); n != 0 {
			fields = append(fields, tier+separator+strconv.Itoa(i), n)
		}
	}
	if sum := s.sum.Swap(0); sum != 0 {
		fields = append(fields, tier+separator+sumField, sum)
	}
	return fields
}

// putBack undoes take.
func (s *spread) putBack(fields []any) {
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		n, _ := fields[i+1].(int64)
		s.read(name[strings.Index(name, separator)+1:], n)
	}
}

// read adds what a field of the counts says; one of another version is ignored.
func (s *spread) read(name string, n int64) {
	if name == sumField {
		s.sum.Add(n)
		return
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < bucketCount {
		s.buckets[i].Add(n)
	}
}

func (s *spread) count() int64 {
	var n int64
	for i := range s.buckets {
		n += s.buckets[i].Load()
	}
	return n
}

// quantile is a duration that this part of all did not exceed.
func (s *spread) quantile(q float64) time.Duration {
	rest := int64(q*float64(s.count()) + 0.5)
	for i := range s.buckets {
		if rest -= s.buckets[i].Load(); rest <= 0 && s.buckets[i].Load() > 0 {
			return bucketEnd(i)
		}
	}
	return 0
}
