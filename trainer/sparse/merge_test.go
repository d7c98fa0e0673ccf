package sparse

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/wire"
)

// twin is a reference for Rows: a map from row to values, which needs no
// order.
type twin[T wire.Float] map[int64][]T

func (m twin[T]) rows(width int) Rows[T] {
	r := Rows[T]{Width: width}
	for _, row := range slices.Sorted(maps.Keys(m)) {
		r.Index = append(r.Index, row)
		r.Values = append(r.Values, m[row]...)
	}
	return r
}

func twinOf[T wire.Float](r Rows[T]) twin[T] {
	m := twin[T]{}
	for i, row := range r.Index {
		m[row] = slices.Clone(r.Row(i))
	}
	return m
}

// plus adds two maps as the documentation of Merge defines it.
func (m twin[T]) plus(b twin[T]) twin[T] {
	sum := maps.Clone(m)
	for row, values := range b {
		if _, both := m[row]; !both {
			sum[row] = values
			continue
		}
		added := slices.Clone(m[row])
		for i := range added {
			added[i] += values[i]
		}
		sum[row] = added
	}
	return sum
}

// noise returns random values of very different magnitudes, with positive and
// negative zeros. Another order of additions gives other bits.
func noise[T wire.Float](random *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		switch random.IntN(20) {
		case 0:
			x[i] = T(math.Copysign(0, -1))
		case 1:
		default:
			x[i] = T(random.NormFloat64() * math.Exp2(float64(random.IntN(30))))
		}
	}
	return x
}

// someRows returns rows of [lo, hi) with random values. Each row is included
// with probability chance.
func someRows[T wire.Float](random *rand.Rand, lo, hi int64, width int, chance float64) Rows[T] {
	r := Rows[T]{Width: width}
	for row := lo; row < hi; row++ {
		if random.Float64() < chance {
			r.Index = append(r.Index, row)
		}
	}
	r.Values = noise[T](random, len(r.Index)*width)
	return r
}

// same fails the test unless got and want have the same rows with the same
// bits.
func same[T wire.Float](t *testing.T, got, want Rows[T]) {
	t.Helper()
	if got.Width != want.Width || !slices.Equal(got.Index, want.Index) {
		t.Fatalf("rows %v of width %d, want %v of width %d", got.Index, got.Width, want.Index, want.Width)
	}
	sameBits(t, got.Values, want.Values)
}

func sameBits[T wire.Float](t *testing.T, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d elements, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Float64bits(float64(got[i])) != math.Float64bits(float64(want[i])) {
			t.Fatalf("element %d of %d: %v, want %v", i, len(want), got[i], want[i])
		}
	}
}

func TestMergeMatchesMapSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var into Rows[float32]
	for range 500 {
		width := 1 + random.IntN(4)
		a := someRows[float32](random, 0, 60, width, random.Float64()*random.Float64())
		b := someRows[float32](random, 20, 90, width, random.Float64()*random.Float64())
		before := [2]Rows[float32]{twinOf(a).rows(width), twinOf(b).rows(width)}
		into = Merge(into, a, b)
		same(t, into, twinOf(a).plus(twinOf(b)).rows(width))
		same(t, a, before[0])
		same(t, b, before[1])
	}
}

func TestMergeOfDifferentWidthsPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("merged rows of width 1 and 2")
		}
	}()
	Merge(Rows[float32]{}, Rows[float32]{Width: 1}, Rows[float32]{Width: 2})
}

// sum adds the values of leaves along the fixed reduction tree.
func sum[V any](leaves []V, add func(a, b V) V) V {
	if len(leaves) == 1 {
		return leaves[0]
	}
	mid := len(leaves) / 2
	return add(sum(leaves[:mid], add), sum(leaves[mid:], add))
}

// The gradients of six virtual workers must give the same bits as the
// reference, whichever worker merges which subtree, and however the table is
// cut into shards.
func TestTreeSumsDoNotDependOnPartition(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		var leaves []Rows[float64]
		var twins []twin[float64]
		for range 6 {
			leaf := someRows[float64](random, 0, 50, 3, 0.4)
			leaves, twins = append(leaves, leaf), append(twins, twinOf(leaf))
		}
		want := sum(twins, twin[float64].plus).rows(3)
		merge := func(a, b Rows[float64]) Rows[float64] { return Merge(Rows[float64]{}, a, b) }
		same(t, sum(leaves, merge), want)
		cut := int64(random.IntN(51))
		for _, bounds := range [][2]int64{{0, cut}, {cut, 50}} {
			var pieces []Rows[float64]
			for _, leaf := range leaves {
				pieces = append(pieces, leaf.Cut(bounds[0], bounds[1]))
			}
			same(t, sum(pieces, merge), want.Cut(bounds[0], bounds[1]))
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	a, b := someRows[float32](random, 0, 500, 8, 0.3), someRows[float32](random, 0, 500, 8, 0.3)
	index := make([]int64, 400)
	for i := range index {
		index[i] = random.Int64N(500)
	}
	var into, decoded Rows[float32]
	var lookup Lookup[float32]
	var encoded []byte
	var failed error
	values, input := noise[float32](random, 400*8), make([]float32, 400*8)
	if n := testing.AllocsPerRun(10, func() {
		into = Merge(into, a, b)
		pulled := lookup.Set(index)
		lookup.Gather(values[:len(pulled)*8], 8, input)
		encoded = Append(encoded[:0], lookup.Combine(values, 8))
		decoded, failed = Decode(encoded, 0, 500, 8, decoded)
	}); n != 0 || failed != nil {
		t.Errorf("%v allocations per step: %v", n, failed)
	}
}

// Merge must allocate memory at most once, for exactly the rows of the result.
func TestMergeAllocatesOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 10))
	a, b := someRows[float32](random, 0, 500, 8, 0.5), someRows[float32](random, 0, 500, 8, 0.5)
	memory := Rows[float32]{Width: 8}.reset(8, union(a.Index, b.Index))
	r := Merge(memory, a, b)
	if &memory.Index[:1][0] != &r.Index[0] || &memory.Values[:1][0] != &r.Values[0] {
		t.Error("Merge left the memory that is just large enough")
	}
	if n := len(twinOf(a).plus(twinOf(b))); union(a.Index, b.Index) != n {
		t.Errorf("room for %d rows, want %d", union(a.Index, b.Index), n)
	}
}
