package dedup_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// Each claim beside what it is compared with, on one server, in turns: the
// machine may be busy with other things.
func BenchmarkFreshClaim(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	claims := open(b, rdb, dedup.Options{})
	ctx := b.Context()
	var claim, bare time.Duration
	n := 0
	for b.Loop() {
		n++
		c := by("a")
		c.Key.Name = strconv.Itoa(n)
		began := time.Now()
		if v, err := claims.Claim(ctx, c); err != nil || v.Decision != dedup.Granted {
			b.Fatal(v.Decision, err)
		}
		claimed := time.Now()
		if err := rdb.SetArgs(ctx, "bare:"+c.Key.Name, "a", redis.SetArgs{Mode: "NX", TTL: time.Hour}).Err(); err != nil {
			b.Fatal(err)
		}
		claim += claimed.Sub(began)
		bare += time.Since(claimed)
	}
	b.ReportMetric(float64(claim.Nanoseconds())/float64(n), "ns/claim")
	b.ReportMetric(float64(bare.Nanoseconds())/float64(n), "ns/SETNX")
	b.ReportMetric(float64(claim)/float64(bare), "ratio")
}

func BenchmarkFreshClaimOf64(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	claims := open(b, rdb, dedup.Options{})
	var n atomic.Int64
	b.SetParallelism(32)
	for name, do := range map[string]func(context.Context, string) error{
		"claim": func(ctx context.Context, name string) error {
			c := by("a")
			c.Key.Name = name
			_, err := claims.Claim(ctx, c)
			return err
		},
		"SETNX": func(ctx context.Context, name string) error {
			return rdb.SetArgs(ctx, "bare:"+name, "a", redis.SetArgs{Mode: "NX", TTL: time.Hour}).Err()
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := do(b.Context(), strconv.FormatInt(n.Add(1), 10)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkDuplicate(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	bundle := &bundle{Claims: open(b, rdb, dedup.Options{}), rdb: rdb}
	bundle.run(b, by("a"), dedup.Completed)
	claim := by("b")
	for b.Loop() {
		if v, err := bundle.Claim(b.Context(), claim); err != nil || v.Decision != dedup.Duplicate {
			b.Fatal(v.Decision, err)
		}
	}
}

func BenchmarkBatch1000(b *testing.B) {
	claims := open(b, redistest.Start(b).Client(b), dedup.Options{})
	batch := many("a", 1000)
	round := 0
	for b.Loop() {
		round++
		for i := range batch {
			batch[i].Key.Project = strconv.Itoa(round)
		}
		verdicts, err := claims.ClaimBatch(b.Context(), batch)
		if err != nil || verdicts[999].Decision != dedup.Granted {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(round)/1000, "ns/claim")
}
