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

// collect returns all elements of a sequence.
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

// Interleave must return the samples in the order that a simple loop over the
// parts gives.
func TestInterleave(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var parts []Dataset[[2]int]
		for p := range draw.IntN(6) {
			parts = append(parts, Map(count(draw.IntN(8)), func(i int) ([2]int, error) { return [2]int{p, i}, nil }))
		}
		var want [][2]int
		sorted := slices.Clone(parts)
		slices.SortStableFunc(sorted, func(a, b Dataset[[2]int]) int { return b.Len() - a.Len() })
		for round := range 8 {
			for _, p := range sorted {
				if round < p.Len() {
					want = append(want, some(t, p, round, round+1)...)
				}
			}
		}
		d := Interleave(parts...)
		if got := some(t, d, 0, d.Len()); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for _, i := range []int{-1, d.Len()} {
			if _, err := d.At(i); err == nil {
				t.Errorf("sample %d of %d", i, d.Len())
			}
		}
	}
}

func TestPart(t *testing.T) {
	d, err := Part(count(10), 3, 7)
	if err != nil || !slices.Equal(some(t, d, 0, d.Len()), []int{3, 4, 5, 6}) || Describe(d) != "samples 3 to 7 of 10 samples" {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := d.At(4); err == nil {
		t.Error("sample 4 of 4")
	}
	for _, c := range [][2]int{{-1, 2}, {3, 2}, {0, 11}} {
		if _, err := Part(count(10), c[0], c[1]); err == nil {
			t.Errorf("samples %v of 10", c)
		}
	}
}

// flawed is a dataset in which some samples are corrupt.
type flawed []error // by sample

func (d flawed) Len() int              { return len(d) }
func (d flawed) At(i int) (int, error) { return i, d[i] }

// SkipCorrupt must replace a corrupt sample by the next one and count each
// only once. It must not skip errors that are not about a corrupt sample.
func TestSkipCorrupt(t *testing.T) {
	corrupt := func(offset int64) error { return &formatError{"f", 0, offset, errors.New("broken")} }
	d := flawed{nil, corrupt(1), corrupt(2), nil, corrupt(4)}
	told := 0
	s := NewSkipped(func(error) { told++ })
	for range 2 {
		if got := some(t, SkipCorrupt(d, s), 0, 5); !slices.Equal(got, []int{0, 3, 3, 3, 0}) || s.Count() != 3 || told != 3 {
			t.Errorf("%v, %d skipped, %d told", got, s.Count(), told)
		}
	}
	if _, err := SkipCorrupt(d, nil).At(1); err == nil {
		t.Error("a corrupt sample was skipped though nobody asked")
	}
	other := errors.New("the disk is broken")
	if _, err := SkipCorrupt(flawed{other, nil}, s).At(0); err != other || s.Count() != 3 {
		t.Errorf("%v, %d skipped", err, s.Count())
	}
	all := make(flawed, 150)
	for i := range all {
		all[i] = corrupt(int64(i))
	}
	if _, err := SkipCorrupt(all, s).At(7); err == nil || !strings.Contains(err.Error(), "100 corrupt samples in a row") {
		t.Errorf("%v", err)
	}
	if _, err := SkipCorrupt(all[:2], s).At(0); err == nil || !strings.Contains(err.Error(), "2 corrupt samples in a row") {
		t.Errorf("%v", err)
	}
	if none := (*Skipped)(nil); none.Count() != 0 {
		t.Error("nothing was skipped")
	}
}

func TestSharesAreContiguous(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n, of := random.IntN(1000), 1+random.IntN(40)
		if random.IntN(4) == 0 {
			n = math.MaxInt - random.IntN(1000)
		}
		next, least, most := 0, math.MaxInt, 0
		for shard := range of {
			lo, hi := share(n, shard, of)
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

// each returns a sequence of a dataset's samples.
func each[T any](d Dataset[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for i := range d.Len() {
			if !yield(d.At(i)) {
				return
			}
		}
	}
}
