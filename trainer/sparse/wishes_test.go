package sparse

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The reference is a map of sets. A row is free if no worker has requested it
// for the step.
func TestWishesMatchMapOfSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		lo := random.Int64N(100)
		hi := lo + 1 + random.Int64N(200)
		var w Requests
		twin := map[uint64]map[int64]bool{}
		for step := uint64(random.IntN(3)); step < 8; step++ {
			if random.IntN(4) > 0 {
				twin[step] = map[int64]bool{}
				for range 1 + random.IntN(3) {
					index := some(random, lo, hi)
					w.Add(step, lo, hi, index)
					for _, row := range index {
						twin[step][row] = true
					}
				}
			}
			for _, of := range []uint64{step, step - 1} {
				asked := some(random, lo, hi)
				free, taken := w.Split(of, lo, asked)
				var wantFree, wantTaken []int64
				for _, row := range asked {
					if known := twin[of]; known == nil || known[row] {
						wantTaken = append(wantTaken, row)
					} else {
						wantFree = append(wantFree, row)
					}
				}
				if !slices.Equal(free, wantFree) || !slices.Equal(taken, wantTaken) {
					t.Fatalf("of step %d at step %d: %v and %v, want %v and %v", of, step, free, taken, wantFree, wantTaken)
				}
			}
			if delete(twin, step-2); twin[step] != nil && step > 1 {
				w.Add(step-2, lo, hi, some(random, lo, hi)) // a request for a past step, which is ignored
			}
		}
	}
}

func some(random *rand.Rand, lo, hi int64) (index []int64) {
	for row := lo; row < hi; row++ {
		if random.IntN(3) == 0 {
			index = append(index, row)
		}
	}
	return index
}

func TestCommonAndUnionMatchNaiveSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		a, b, c := some(random, 0, 30), some(random, 10, 50), some(random, 0, 9)
		var both, all []int64
		for row := range int64(50) {
			if slices.Contains(a, row) && slices.Contains(b, row) {
				both = append(both, row)
			}
			if slices.Contains(a, row) || slices.Contains(b, row) || slices.Contains(c, row) {
				all = append(all, row)
			}
		}
		if got := Common(a, b); !slices.Equal(got, both) {
			t.Fatalf("%v and %v have %v, want %v", a, b, got, both)
		}
		if got := Union(a, b, c); !slices.Equal(got, all) {
			t.Fatalf("%v, %v, %v make %v, want %v", a, b, c, got, all)
		}
	}
}
