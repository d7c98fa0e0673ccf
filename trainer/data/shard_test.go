package data

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
				if got := collect(t, All(d)); !slices.Equal(got, want) || d.Len() != len(want) {
					t.Fatalf("shard %d of %d of %d: %v, length %d, want %v", shard, of, n, got, d.Len(), want)
				}
				s, err := ShardStream(NewStream(All(numbers(n))), shard, of)
				if err != nil {
					t.Fatal(err)
				}
				if got := collect(t, s.All()); !slices.Equal(got, want) {
					t.Fatalf("stream, shard %d of %d of %d: %v, want %v", shard, of, n, got, want)
				}
				if again := collect(t, s.All()); !slices.Equal(again, want) {
					t.Fatalf("stream, second range: %v, want %v", again, want)
				}
			}
		}
	}
}

func TestShardIsRefused(t *testing.T) {
	double := func(x int) (int, error) { return 2 * x, nil }
	once, err := Shard(numbers(10), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := ShardStream(NewStream(All(numbers(10))), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := ShardLines("nowhere", 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, shard := range map[string]func() error{
		"nested":              func() error { _, err := Shard(once, 0, 2); return err },
		"nested under Map":    func() error { _, err := Shard(Map(Map(once, double), double), 0, 2); return err },
		"nested stream":       func() error { _, err := ShardStream(stream, 0, 2); return err },
		"nested MapStream":    func() error { _, err := ShardStream(MapStream(stream, double), 0, 2); return err },
		"lines sharded twice": func() error { _, err := ShardStream(lines, 0, 2); return err },
	} {
		err := shard()
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), "already") || !errors.As(err, &hinted) || hinted.Hint() == "" {
			t.Errorf("%s: error %v, want a refusal with a hint", name, err)
		}
	}
	for _, c := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {0, -1}} {
		_, err1 := Shard(numbers(3), c[0], c[1])
		_, err2 := ShardStream(NewStream(All(numbers(3))), c[0], c[1])
		_, err3 := FileShards(nil, c[0], c[1])
		_, err4 := ShardLines("x", c[0], c[1])
		if err1 == nil || err2 == nil || err3 == nil || err4 == nil {
			t.Errorf("shard %d of %d is accepted: %v %v %v %v", c[0], c[1], err1, err2, err3, err4)
		}
	}
	if _, err := Shard(Map(numbers(3), double), 1, 2); err != nil {
		t.Errorf("what was not sharded is refused: %v", err)
	}
}

func TestErrorsEndStreams(t *testing.T) {
	broken := errors.New("broken")
	pulled := 0
	s := NewStream(func(yield func(int, error) bool) {
		for i := range 10 {
			pulled++
			var err error
			if i == 5 {
				err = broken
			}
			if !yield(i, err) {
				return
			}
		}
	})
	for shard := range 4 {
		pulled = 0
		part, err := ShardStream(s, shard, 4)
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for _, last = range MapStream(part, func(x int) (int, error) { return x, nil }).All() {
		}
		if last != broken || pulled != 6 {
			t.Errorf("shard %d: error %v after %d elements, want %v after 6", shard, last, pulled, broken)
		}
	}
	odd := Map(numbers(9), func(x int) (int, error) {
		if x == 3 {
			return 0, broken
		}
		return x, nil
	})
	seen := 0
	for range All(odd) {
		seen++
	}
	if seen != 4 {
		t.Errorf("a dataset's sequence went on after an error: %d elements", seen)
	}
	if _, err := odd.At(9); err == nil {
		t.Error("sample 9 of 9")
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

// Each file is in one shard, whatever order a host lists them in.
func TestFileShards(t *testing.T) {
	var sorted []string
	for i := range 23 {
		sorted = append(sorted, "part-"+strconv.Itoa(100+i))
	}
	for of := 1; of < 30; of++ {
		var all []string
		for shard := range of {
			listed := slices.Clone(sorted)
			rand.New(rand.NewPCG(uint64(shard), 3)).Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
			before := slices.Clone(listed)
			part, err := FileShards(listed, shard, of)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(listed, before) {
				t.Fatal("the argument was changed")
			}
			all = append(all, part...)
		}
		if !slices.Equal(all, sorted) {
			t.Fatalf("%d shards: %v", of, all)
		}
	}
}

// The shards of a text's bytes have each line once, wherever the cuts fall.
func TestShardLines(t *testing.T) {
	for _, text := range []string{
		"", "a", "a\n", "\n\n\n", "one\ntwo\nthree\n", "one\r\n\r\ntwo", "\ufefffirst\nsecond\n\nlast",
		strings.Repeat("x", 100000) + "\nshort\n" + strings.Repeat("é", 50000),
	} {
		path := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want := collect(t, Lines(path).All())
		for of := 1; of < 12; of++ {
			var got []string
			for shard := range of {
				s, err := ShardLines(path, shard, of)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, collect(t, s.All())...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%.20q in %d shards: %d lines %.60q, want %d %.60q", text, of, len(got), got, len(want), want)
			}
		}
	}
}
