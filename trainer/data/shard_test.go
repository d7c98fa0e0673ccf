package data

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func numbers(n int) Slice[int] {
	s := make(Slice[int], n)
	for i := range s {
		s[i] = i
	}
	return s
}

// samples is the sequence of a dataset's samples.
func samples[T any](d Dataset[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for i := range d.Len() {
			if !yield(d.At(i)) {
				return
			}
		}
	}
}

// collect ranges over all of a sequence.
func collect[T any](t *testing.T, all iter.Seq2[T, error]) []T {
	t.Helper()
	var got []T
	for x, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x)
	}
	return got
}

// Every element is in exactly one shard: index i in shard i mod of, in order.
func TestShardsHoldEachElementOnce(t *testing.T) {
	for n := range 40 {
		for of := 1; of < 12; of++ {
			for shard := range of {
				var want []int
				for i := range n {
					if i%of == shard {
						want = append(want, i)
					}
				}
				d, err := Shard(numbers(n), shard, of)
				if err != nil {
					t.Fatal(err)
				}
				if got := collect(t, samples(d)); !slices.Equal(got, want) || d.Len() != len(want) {
					t.Fatalf("shard %d of %d of %d: %v, length %d, want %v", shard, of, n, got, d.Len(), want)
				}
			}
		}
	}
}

func TestShardIsRefused(t *testing.T) {
	once, err := Shard(numbers(10), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Shard(once, 0, 2)
	var hinted interface{ Hint() string }
	if err == nil || !strings.Contains(err.Error(), "already") || !errors.As(err, &hinted) || hinted.Hint() == "" {
		t.Errorf("nested: error %v, want a refusal with a hint", err)
	}
	for _, c := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {0, -1}} {
		if _, err := Shard(numbers(3), c[0], c[1]); err == nil {
			t.Errorf("shard %d of %d is accepted", c[0], c[1])
		}
	}
	if _, err := once.At(10); err == nil {
		t.Error("sample 10 of 10")
	}
}

func TestRangesFollowOneAnother(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n, of := random.IntN(1000), 1+random.IntN(40)
		if random.IntN(4) == 0 {
			n = math.MaxInt - random.IntN(1000)
		}
		next, least, most := 0, math.MaxInt, 0
		for shard := range of {
			lo, hi := Range(n, shard, of)
			if lo != next || hi < lo {
				t.Fatalf("n %d, shard %d of %d: [%d, %d) after %d", n, shard, of, lo, hi, next)
			}
			if n < 1<<40 && (lo != shard*n/of || hi != (shard+1)*n/of) {
				t.Fatalf("n %d, shard %d of %d: [%d, %d), want [%d, %d)", n, shard, of, lo, hi, shard*n/of, (shard+1)*n/of)
			}
			next, least, most = hi, min(least, hi-lo), max(most, hi-lo)
		}
		if next != n || most-least > 1 {
			t.Fatalf("n %d of %d: ends at %d, lengths %d to %d", n, of, next, least, most)
		}
	}
}

func TestRangePanics(t *testing.T) {
	for _, c := range [][3]int{{-1, 0, 1}, {1, 0, 0}, {1, 1, 1}, {1, -1, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Range(%v) returned", c)
				}
			}()
			Range(c[0], c[1], c[2])
		}()
	}
}
