package data

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

// count is a dataset in which sample i is the number i.
type count int

func (n count) Len() int              { return int(n) }
func (n count) At(i int) (int, error) { return i, checkIndex(i, int(n)) }

func mustEpochs(t *testing.T, samples, batch int, seed uint64) Dataset[int] {
	t.Helper()
	e, err := Epochs(count(samples), batch, seed)
	if err != nil {
		t.Fatalf("%d samples, batch %d: %v", samples, batch, err)
	}
	return e
}

// some returns the samples with indices from <= i < to.
func some[T any](t *testing.T, d Dataset[T], from, to int) []T {
	t.Helper()
	var all []T
	for i := from; i < to; i++ {
		x, err := d.At(i)
		if err != nil {
			t.Fatalf("sample %d: %v", i, err)
		}
		all = append(all, x)
	}
	return all
}

// Each epoch must have whole batches of distinct samples, and leave out only
// the last samples of its order.
func TestEachSampleOncePerEpoch(t *testing.T) {
	for _, c := range []struct{ samples, batch int }{{1, 1}, {7, 7}, {7, 3}, {100, 9}, {64, 64}, {200, 199}} {
		e := mustEpochs(t, c.samples, c.batch, 5)
		whole := c.samples / c.batch * c.batch
		for epoch := range 4 {
			all := some(t, e, epoch*whole, (epoch+1)*whole)
			slices.Sort(all)
			if len(slices.Compact(all)) != whole || all[0] < 0 || all[whole-1] >= c.samples {
				t.Errorf("%+v: epoch %d holds %v", c, epoch, all)
			}
		}
	}
}

// The samples of a step must not depend on the steps that were read before.
func TestStepsInAnyOrder(t *testing.T) {
	for _, samples := range []int{1000, maxTable + 1} {
		forward, backward := mustEpochs(t, samples, 64, 9), mustEpochs(t, samples, 64, 9)
		var want [][]int
		for step := range 60 {
			at := step * samples / 7
			want = append(want, some(t, forward, at, at+64))
		}
		for step := 59; step >= 0; step-- {
			at := step * samples / 7
			if got := some(t, backward, at, at+64); !slices.Equal(got, want[step]) {
				t.Fatalf("%d samples, from %d: %v, want %v", samples, at, got, want[step])
			}
		}
	}
}

func TestEpochsDiffer(t *testing.T) {
	e, other := mustEpochs(t, 100, 100, 1), mustEpochs(t, 100, 100, 2)
	first := some(t, e, 0, 100)
	if slices.Equal(first, some(t, e, 100, 200)) || slices.Equal(first, some(t, other, 0, 100)) || slices.IsSorted(first) {
		t.Error("the order of an epoch depends on too little")
	}
}

func TestEpochsErrors(t *testing.T) {
	for want, c := range map[string][2]int{
		"empty":         {0, 1},
		"a batch of 0":  {1, 0},
		"fill no batch": {3, 4},
		"at most":       {maxSamples + 1, 4},
	} {
		if _, err := Epochs(count(c[0]), c[1], 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	e := mustEpochs(t, 3, 1, 1)
	if _, err := e.At(e.Len()); err == nil {
		t.Error("a sample after the last epoch")
	}
}

// A table and a feistel must map to each number once, for every small n and
// some larger ones.
func TestPermutations(t *testing.T) {
	sizes := []int{255, 256, 257, 1023, maxTable, maxTable + 1, 1<<17 + 3}
	for n := 1; n < 130; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		s := random.New(uint64(n), "test")
		for name, p := range map[string]permutation{"table": newTable(n, s), "feistel": newFeistel(n, s), "chosen": newPermutation(n, s)} {
			seen := make([]bool, n)
			for i := range n {
				at := p.at(i)
				if at < 0 || at >= n || seen[at] {
					t.Fatalf("%s of %d: %d is at %d, out of range or twice", name, n, i, at)
				}
				seen[at] = true
			}
		}
	}
}

// A feistel must map the indices of each sixteenth of the range evenly to all
// sixteenths, and neighboring indices far apart.
func TestFeistelIsUniform(t *testing.T) {
	const n, parts = 100000, 16
	for seed := range uint64(4) {
		p := newFeistel(n, random.New(seed, "even"))
		var counts [parts][parts]float64
		near, fixed := 0, 0
		for i := range n {
			at := p.at(i)
			counts[i*parts/n][at*parts/n]++
			if at == i {
				fixed++
			}
			if d := p.at((i+1)%n) - at; max(d, -d) < n/1000 {
				near++
			}
		}
		chi := 0.0
		for _, row := range counts {
			for _, count := range row {
				const want = float64(n) / parts / parts
				chi += (count - want) * (count - want) / want
			}
		}
		// chi has 225 degrees of freedom: mean 225, standard deviation 21.
		// near is expected to be 200, with a standard deviation of 14. fixed
		// is expected to be 1.
		if chi < 130 || chi > 350 || near < 120 || near > 290 || fixed > 8 {
			t.Errorf("seed %d: chi-square %.0f, near neighbours %d, fixed places %d", seed, chi, near, fixed)
		}
	}
}

// All six permutations of three elements must be about equally frequent.
func TestTableIsUniform(t *testing.T) {
	counts := map[[3]uint32]int{}
	for i := range uint64(6000) {
		p := newTable(3, random.New(1, "even").Derive(i))
		counts[[3]uint32(p)]++
	}
	for order, n := range counts {
		if n < 850 || n > 1150 || len(counts) != 6 {
			t.Errorf("order %v: %d of 6000, %d orders", order, n, len(counts))
		}
	}
}

// The order of a large dataset must need no memory proportional to its size,
// and work up to the largest index.
func TestLargeEpochs(t *testing.T) {
	e := mustEpochs(t, maxSamples, 256, 4)
	last := e.Len() - 256
	if last < 1<<61 {
		t.Fatalf("%d samples", e.Len())
	}
	into := some(t, e, last, last+256)
	allocated := testing.AllocsPerRun(5, func() {
		for i := range into {
			into[i], _ = e.At(last + i)
		}
	})
	if allocated > 2 {
		t.Errorf("%v allocations for a batch", allocated)
	}
	slices.Sort(into)
	if len(slices.Compact(into)) != 256 {
		t.Error("a batch within one epoch holds a sample twice")
	}
}
