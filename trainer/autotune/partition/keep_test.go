package partition

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/random"
)

func TestKeep(t *testing.T) {
	for _, c := range []struct {
		assigned []int
		here     [][]float64
		want     []int
	}{
		{[]int{0, 1, 2}, [][]float64{{0, 0, 5}, {5, 0, 0}, {0, 5, 0}}, []int{2, 0, 1}},
		{[]int{0, 0, 1}, [][]float64{{0, 3}, {2, 0}, {0, 9}}, []int{0, 0, 1}}, // piece 0 moves its 3 rows; the 2 and 9 rows of pieces 1 and 2 stay
		{[]int{1, 0}, [][]float64{{0, 0, 0}, {0, 0, 0}}, []int{1, 0}},
		{nil, nil, []int{}},
	} {
		if got := Keep(c.assigned, c.here); !slices.Equal(got, c.want) {
			t.Errorf("%v with %v: %v, want %v", c.assigned, c.here, got, c.want)
		}
	}
}

// Keep never splits or merges groups. At least half as many rows stay as in
// the best possible renaming; the greedy choice of the largest group
// guarantees that.
func TestKeepMovesAtMostTwiceTheOptimum(t *testing.T) {
	for trial := range uint64(500) {
		s := random.New(trial, "keep")
		holders := 1 + int(s.Bits(0)[0]%5)
		assigned, here := make([]int, 8), make([][]float64, 8)
		for i := range assigned {
			assigned[i] = int(s.Bits(uint64(i + 1))[0]) % holders
			for o := range holders {
				here[i] = append(here[i], float64(s.Bits(uint64(100 + 10*i + o))[0]%20))
			}
		}
		kept := Keep(assigned, here)
		for i := range kept {
			for k := range kept {
				if kept[i] < 0 || kept[i] >= holders || (kept[i] == kept[k]) != (assigned[i] == assigned[k]) {
					t.Fatalf("%v became %v", assigned, kept)
				}
			}
		}
		most := 0.0
		permute(holders, func(name []int) {
			renamed := make([]int, len(assigned))
			for i, group := range assigned {
				renamed[i] = name[group]
			}
			most = max(most, stays(renamed, here))
		})
		if stays(kept, here) < most/2 {
			t.Errorf("%v of it stays, of %v that could", stays(kept, here), most)
		}
	}
}

func stays(holders []int, here [][]float64) (amount float64) {
	for i, o := range holders {
		amount += here[i][o]
	}
	return amount
}

// permute calls do with every permutation of the numbers 0 to n-1.
func permute(n int, do func([]int)) {
	var grow func(names []int)
	grow = func(names []int) {
		if len(names) == n {
			do(names)
			return
		}
		for next := range n {
			if !slices.Contains(names, next) {
				grow(append(names[:len(names):len(names)], next))
			}
		}
	}
	grow(nil)
}
