package main

import (
	"math"
	"reflect"
	"slices"
	"testing"
)

func mustGenerator(t *testing.T, features, classes int, seed uint64) *generator {
	t.Helper()
	g, err := newGenerator(features, classes, seed)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A sample does not depend on which worker generates it or in which order, and
// another seed gives other data.
func TestSamplesDependOnSeedAndNumberAlone(t *testing.T) {
	all := mustGenerator(t, 64, 8, 7).samples(0, 100)
	part := mustGenerator(t, 64, 8, 7).samples(40, 60)
	for i := range part.labels {
		if part.labels[i] != all.labels[40+i] || !slices.Equal(part.row(i), all.row(40+i)) {
			t.Fatalf("sample %d differs", 40+i)
		}
	}
	if other := mustGenerator(t, 64, 8, 8).samples(0, 100); slices.Equal(other.rows, all.rows) {
		t.Error("two seeds give the same data")
	}
	for i := 1; i < 100; i++ {
		if slices.Equal(all.row(i)[32:], all.row(0)[32:]) {
			t.Errorf("samples 0 and %d share their noise", i)
		}
	}
}

func TestClassesAreBalanced(t *testing.T) {
	d := mustGenerator(t, 64, 32, 0).samples(0, 10000)
	counts := make([]int, 32)
	for _, l := range d.labels {
		counts[l]++
	}
	if slices.Max(counts)-slices.Min(counts) > clustersPerClass {
		t.Errorf("samples by class: %v", counts)
	}
}

// The means of informative features are near -1 or 1, those of other features
// near 0. The noise has unit variance.
func TestCentresAndNoise(t *testing.T) {
	g := mustGenerator(t, 64, 4, 3)
	const perCluster = 200
	clusters := len(g.centres)
	d := g.samples(0, perCluster*clusters)
	var squares float64
	for c := range clusters {
		for j := range 64 {
			mean, want := 0.0, 0.0
			if j < 32 {
				want = float64(g.centres[c][j])
			}
			for i := c; i < len(d.labels); i += clusters {
				mean += float64(d.row(i)[j]) / perCluster
				noise := float64(d.row(i)[j]) - want
				squares += noise * noise
			}
			if math.Abs(mean-want) > 6/math.Sqrt(perCluster) {
				t.Errorf("cluster %d feature %d: mean %.3f, want about %v", c, j, mean, want)
			}
		}
	}
	if variance := squares / float64(len(d.rows)); math.Abs(variance-1) > 0.01 {
		t.Errorf("variance of the noise is %.4f", variance)
	}
}

func TestCentresAreDistinct(t *testing.T) {
	for _, c := range []struct {
		features, classes int
		fits              bool
	}{{1024, 32, true}, {12, 5, true}, {10, 3, true}, {10, 4, false}, {2, 2, false}, {1, 2, false}} {
		g, err := newGenerator(c.features, c.classes, 0)
		if (err == nil) != c.fits {
			t.Errorf("%+v: got error %v", c, err)
		}
		if err != nil {
			continue
		}
		for i, a := range g.centres {
			for j := range i {
				if slices.Equal(a, g.centres[j]) {
					t.Errorf("%+v: clusters %d and %d share a centre", c, j, i)
				}
			}
		}
	}
}

func TestBatch(t *testing.T) {
	d := mustGenerator(t, 12, 3, 0).samples(0, 10)
	x, y := d.batch([]int{4, 0})
	if !slices.Equal(x.Shape(), []int{2, 12}) || !slices.Equal(y.Shape(), []int{2, 3}) {
		t.Fatalf("shapes are %v and %v", x.Shape(), y.Shape())
	}
	if !slices.Equal(x.Data().([]float32)[:12], d.row(4)) {
		t.Error("the first row is not sample 4")
	}
	if want := []float32{0, 1, 0, 1, 0, 0}; !slices.Equal(y.Data().([]float32), want) {
		t.Errorf("labels are %v, want %v", y.Data(), want)
	}
}

// A batch stays valid when the next batch is made; the batch after that reuses
// its memory.
func TestBatches(t *testing.T) {
	d := mustGenerator(t, 12, 3, 0).samples(0, 10)
	b := &batches{from: d}
	x0, y0 := b.next([]int{4, 0})
	x1, _ := b.next([]int{1, 2})
	if wantX, wantY := d.batch([]int{4, 0}); !slices.Equal(x0.Data().([]float32), wantX.Data().([]float32)) || !slices.Equal(y0.Data().([]float32), wantY.Data().([]float32)) {
		t.Error("the second batch changed the first one")
	}
	if x2, _ := b.next([]int{3, 5}); x2 != x0 || !slices.Equal(x2.Data().([]float32)[12:], d.row(5)) {
		t.Error("the third batch is not in the place of the first one")
	}
	if x3, y3 := b.next([]int{7}); x3 == x1 || !slices.Equal(x3.Shape(), []int{1, 12}) || y3.Data().([]float32)[d.labels[7]] != 1 {
		t.Error("a batch of another size has its rows alone")
	}
}

// An epoch takes no sample twice, and the next epoch has another order. A
// worker that requests steps out of order gets the same samples.
func TestOrder(t *testing.T) {
	o := order{samples: 103, batch: 10, seed: 1}
	var steps [][]int
	seen := map[int]bool{}
	for step := range 20 {
		steps = append(steps, slices.Clone(o.step(step)))
		for _, i := range steps[step] {
			if step < 10 && seen[i] {
				t.Errorf("sample %d comes twice in the first epoch", i)
			}
			seen[i] = true
		}
	}
	if reflect.DeepEqual(steps[:10], steps[10:]) {
		t.Error("the second epoch has the order of the first")
	}
	late := order{samples: 103, batch: 10, seed: 1}
	for _, step := range []int{17, 3, 11} {
		if !slices.Equal(late.step(step), steps[step]) {
			t.Errorf("step %d asked for out of order differs", step)
		}
	}
}
