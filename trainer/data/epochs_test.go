package data

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

func mustEpochs(t *testing.T, c EpochsConfig) *Epochs {
	t.Helper()
	e, err := NewEpochs(c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return e
}

// gathered is a step's batch as W workers see it, each with the rows of its
// contiguous range of the V virtual workers.
func gathered(e *Epochs, batch, step, virtual, workers int) []int {
	var all []int
	for w := range workers {
		first, end := Range(virtual, w, workers)
		lo, _ := Range(batch, first, virtual)
		hi := lo
		if end > first {
			_, hi = Range(batch, end-1, virtual)
		}
		all = e.Rows(step, lo, hi, all)
	}
	return all
}

// Over an epoch the batches of all workers together hold every sample once,
// and the batch is the same for any number of workers. Checked for random
// numbers of samples, batches, virtual workers and workers.
func TestEachSampleOncePerEpoch(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		c := EpochsConfig{
			Samples: 1 + draw.IntN(200), Batch: 1 + draw.IntN(50), Seed: draw.Uint64(),
			Last: Last(draw.IntN(3)), Ordered: draw.IntN(5) == 0,
		}
		if c.Last == Drop {
			c.Batch = min(c.Batch, c.Samples)
		}
		e := mustEpochs(t, c)
		const epochs = 3
		virtual := 1 + draw.IntN(8)
		counts, rows := make([]int, c.Samples), 0
		for step := range e.Steps(epochs) {
			batch := e.Rows(step, 0, c.Batch, nil)
			if len(batch) != e.Size(step) {
				t.Fatalf("%+v: step %d has %d rows, Size says %d", c, step, len(batch), e.Size(step))
			}
			workers := 1 + draw.IntN(virtual)
			if got := gathered(e, c.Batch, step, virtual, workers); !slices.Equal(got, batch) {
				t.Fatalf("%+v: step %d: %d workers of %d virtual ones have %v, one has %v", c, step, workers, virtual, got, batch)
			}
			for _, i := range batch {
				if rows < epochs*c.Samples || c.Last != Wrap {
					counts[i]++
				}
				rows++
			}
		}
		checkCounts(t, c, counts, epochs)
	}
}

func checkCounts(t *testing.T, c EpochsConfig, counts []int, epochs int) {
	t.Helper()
	total := 0
	for i, n := range counts {
		total += n
		if n > epochs || c.Last != Drop && n != epochs {
			t.Fatalf("%+v: sample %d is in %d batches of %d epochs", c, i, n, epochs)
		}
	}
	if c.Last == Drop && total != epochs*(c.Samples/c.Batch*c.Batch) {
		t.Fatalf("%+v: %d rows in %d epochs", c, total, epochs)
	}
}

// Under Wrap each epoch's samples are complete before the next epoch's begin,
// though batches run across.
func TestWrapFinishesEachEpoch(t *testing.T) {
	e := mustEpochs(t, EpochsConfig{Samples: 7, Batch: 17, Seed: 1, Last: Wrap})
	var all []int
	for step := range 7 {
		all = e.Rows(step, 0, 17, all)
	}
	for epoch := range 17 {
		one := slices.Clone(all[epoch*7 : (epoch+1)*7])
		slices.Sort(one)
		if !slices.Equal(one, numbers(7)) {
			t.Errorf("epoch %d holds %v", epoch, one)
		}
	}
}

// A step's samples do not depend on which steps were asked for before.
func TestStepsInAnyOrder(t *testing.T) {
	for _, samples := range []int{1000, maxTable + 1} {
		c := EpochsConfig{Samples: samples, Batch: 64, Seed: 9, Last: Wrap}
		forward, steps := mustEpochs(t, c), []int{}
		for step := range 60 {
			steps = append(steps, step*samples/640)
		}
		var want [][]int
		for _, step := range steps {
			want = append(want, forward.Rows(step, 0, 64, nil))
		}
		backward := mustEpochs(t, c)
		for i := len(steps) - 1; i >= 0; i-- {
			if got := backward.Rows(steps[i], 0, 64, nil); !slices.Equal(got, want[i]) {
				t.Fatalf("%d samples, step %d: %v, want %v", samples, steps[i], got, want[i])
			}
		}
	}
}

func TestEpochsDiffer(t *testing.T) {
	c := EpochsConfig{Samples: 100, Batch: 100, Seed: 1}
	e := mustEpochs(t, c)
	c.Seed = 2
	other := mustEpochs(t, c)
	first := e.Rows(0, 0, 100, nil)
	if slices.Equal(first, e.Rows(1, 0, 100, nil)) || slices.Equal(first, other.Rows(0, 0, 100, nil)) || slices.Equal(first, numbers(100)) {
		t.Error("the order of an epoch depends on too little")
	}
	c.Ordered = true
	if ordered := mustEpochs(t, c).Rows(3, 0, 100, nil); !slices.Equal(ordered, numbers(100)) {
		t.Errorf("ordered: %v", ordered)
	}
	for step, rows := range e.All(2, 4, 10, 20) {
		if !slices.Equal(rows, e.Rows(step, 10, 20, nil)) || step < 2 || step > 3 {
			t.Errorf("step %d: %v", step, rows)
		}
	}
}

func TestEpochsAreRefused(t *testing.T) {
	for want, c := range map[string]EpochsConfig{
		"empty":             {Batch: 1},
		"a batch of 0":      {Samples: 1},
		"fill no batch":     {Samples: 3, Batch: 4},
		"at most":           {Samples: maxSamples + 1, Batch: 4},
		"last batch policy": {Samples: 3, Batch: 1, Last: 3},
	} {
		if _, err := NewEpochs(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// Both kinds of permutation hold each number once, for every small n and some
// larger ones.
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

// A large computed permutation sends the places of each sixteenth evenly to
// all sixteenths, and neighbours far apart.
func TestFeistelIsEven(t *testing.T) {
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
		// 225 degrees of freedom: mean 225, deviation 21. Near neighbours: 200
		// expected, deviation 14. Fixed places: 1 expected.
		if chi < 130 || chi > 350 || near < 120 || near > 290 || fixed > 8 {
			t.Errorf("seed %d: chi-square %.0f, near neighbours %d, fixed places %d", seed, chi, near, fixed)
		}
	}
}

// A table of three elements takes each of its six orders about as often.
func TestTableIsEven(t *testing.T) {
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

// The order of a large dataset takes no memory by its size.
func TestLargeEpochs(t *testing.T) {
	e := mustEpochs(t, EpochsConfig{Samples: 1 << 32, Batch: 256, Seed: 4, Last: Wrap})
	into := make([]int, 0, 256)
	allocated := testing.AllocsPerRun(5, func() { into = e.Rows(1<<30, 0, 256, into[:0]) })
	if allocated > 2 {
		t.Errorf("%v allocations for a batch", allocated)
	}
	slices.Sort(into)
	if len(slices.Compact(into)) != 256 {
		t.Error("a batch within one epoch holds a sample twice")
	}
}
