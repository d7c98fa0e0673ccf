package partition

import (
	"math"
	"slices"
	"testing"
)

func TestAssign(t *testing.T) {
	for _, c := range []struct {
		loads, base []float64
		want        []int
	}{
		{nil, []float64{0}, []int{}},
		{nil, nil, []int{}},
		{[]float64{1, 2, 3}, []float64{0}, []int{0, 0, 0}},
		{[]float64{1, 2, 3}, []float64{0, 0}, []int{1, 1, 0}},
		{[]float64{1, 1, 1, 1}, []float64{0, 0}, []int{0, 1, 0, 1}},
		{[]float64{0, 0, 0}, []float64{0, 0, 0}, []int{0, 1, 2}},
		{[]float64{1, 1}, []float64{5, 0}, []int{1, 1}},
		{[]float64{math.Inf(1), 3, 2}, []float64{0, 0}, []int{0, 1, 1}},
	} {
		if got := Assign(c.loads, c.base); !slices.Equal(got, c.want) {
			t.Errorf("Assign(%v, %v) = %v, want %v", c.loads, c.base, got, c.want)
		}
	}
}

// heaviest returns the largest load of a shard holder in an assignment.
func heaviest(loads, base []float64, holders []int) float64 {
	carried := slices.Clone(base)
	for i, o := range holders {
		carried[o] += loads[i]
	}
	return slices.Max(carried)
}

// optimum tries all assignments.
func optimum(loads, base []float64) float64 {
	best := math.Inf(1)
	holders := make([]int, len(loads))
	for {
		best = min(best, heaviest(loads, base, holders))
		i := 0
		for ; i < len(holders) && holders[i] == len(base)-1; i++ {
			holders[i] = 0
		}
		if i == len(holders) {
			return best
		}
		holders[i]++
	}
}

// The largest load is at most 2 - 1/n times the optimum, and (4/3 - 1/(3n))
// times if no holder has any load before. Graham has proved these bounds.
func FuzzAssign(f *testing.F) {
	f.Add([]byte{5, 5, 4, 4, 3, 3, 3}, uint8(3), []byte{})
	f.Add([]byte{1, 200, 3, 90, 17}, uint8(4), []byte{9, 80})
	f.Add([]byte{}, uint8(1), []byte{})
	f.Add([]byte{0, 0, 0}, uint8(2), []byte{1})
	f.Fuzz(func(t *testing.T, raw []byte, n uint8, carried []byte) {
		base := make([]float64, 1+n%4)
		for i, b := range carried[:min(len(carried), len(base))] {
			base[i] = float64(b)
		}
		var loads []float64
		for _, b := range raw[:min(len(raw), 7)] {
			loads = append(loads, float64(b))
		}
		holders := Assign(loads, base)
		if len(holders) != len(loads) || !slices.Equal(holders, Assign(loads, base)) {
			t.Fatalf("shard holders %v of %v", holders, loads)
		}
		bound := 4.0/3 - 1/float64(3*len(base))
		if slices.Max(base) > 0 {
			bound = 2 - 1/float64(len(base))
		}
		if got, best := heaviest(loads, base, holders), optimum(loads, base); got > bound*best+1e-9 {
			t.Errorf("%v on %v: %v makes %v, the best is %v", loads, base, holders, got, best)
		}
	})
}
