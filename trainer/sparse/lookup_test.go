package sparse

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveCombine adds the gradients of one position after the other in a map.
func naiveCombine(index []int64, values []float32, width int) Rows[float32] {
	m := twin[float32]{}
	for at, row := range index {
		more := values[at*width : (at+1)*width]
		if _, ok := m[row]; !ok {
			m[row] = slices.Clone(more)
			continue
		}
		for i := range more {
			m[row][i] += more[i]
		}
	}
	return m.rows(width)
}

func TestLookupMatchesNaiveSums(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	var lookup Lookup[float32]
	for range 500 {
		n, width := random.IntN(200), 1+random.IntN(4)
		highest := int64(1) << random.IntN(62)
		index := make([]int64, n)
		for i := range index {
			index[i] = random.Int64N(highest)
			if i > 0 && random.IntN(3) == 0 {
				index[i] = index[random.IntN(i)]
			}
		}
		given, values := slices.Clone(index), noise[float32](random, n*width)
		checkLookup(t, &lookup, index, values, width)
		if !slices.Equal(index, given) {
			t.Fatal("the caller's index was changed")
		}
	}
}

func checkLookup(t *testing.T, lookup *Lookup[float32], index []int64, values []float32, width int) {
	t.Helper()
	unique := lookup.Set(index)
	want := slices.Clone(index)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(unique, want) {
		t.Fatalf("rows %v, want %v", unique, want)
	}
	rows, got := make([]float32, len(unique)*width), make([]float32, len(index)*width)
	for i := range rows {
		rows[i] = float32(unique[i/width]%1000)*10 + float32(i%width)
	}
	lookup.Gather(rows, width, got)
	for i, x := range got {
		if want := float32(index[i/width]%1000)*10 + float32(i%width); x != want {
			t.Fatalf("element %d of position %d: %v, want %v", i%width, i/width, x, want)
		}
	}
	same(t, lookup.Combine(values, width), naiveCombine(index, values, width))
}

// The result shows the order of additions: in float32, (1 + 2^24) + -2^24 is
// 0, but 1 + (2^24 - 2^24) is 1.
func TestCombineKeepsTheOrderOfPositions(t *testing.T) {
	var lookup Lookup[float32]
	lookup.Set([]int64{9, 4, 9, 9, 4, 4})
	const large = 1 << 25
	got := lookup.Combine([]float32{1, large, large, -large, -large, 1}, 1)
	same(t, got, Rows[float32]{Index: []int64{4, 9}, Values: []float32{1, 0}, Width: 1})
}

func TestCombineKeepsNegativeZero(t *testing.T) {
	var lookup Lookup[float64]
	lookup.Set([]int64{7})
	got := lookup.Combine([]float64{math.Copysign(0, -1)}, 1)
	same(t, got, Rows[float64]{Index: []int64{7}, Values: []float64{math.Copysign(0, -1)}, Width: 1})
}

func TestLookupPanicsOnWrongSizes(t *testing.T) {
	var lookup Lookup[float32]
	lookup.Set([]int64{3, 3, 5})
	for name, call := range map[string]func(){
		"combine too few":   func() { lookup.Combine(make([]float32, 5), 2) },
		"combine no width":  func() { lookup.Combine(nil, 0) },
		"gather from all":   func() { lookup.Gather(make([]float32, 3), 1, make([]float32, 3)) },
		"gather into fewer": func() { lookup.Gather(make([]float32, 2), 1, make([]float32, 2)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
