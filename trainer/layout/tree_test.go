package layout

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// recursiveSum adds recursively in the order that Tree documents. NaN stands for
// an absent sum.
func recursiveSum(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	a, b := recursiveSum(x[:len(x)/2]), recursiveSum(x[len(x)/2:])
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return a + b
}

// cuts divides 0..n-1 into random ranges.
func cuts(random *rand.Rand, n int) (all []Range) {
	for lo := 0; lo < n; {
		hi := lo + 1 + random.IntN(n-lo)
		all = append(all, Range{lo, hi})
		lo = hi
	}
	return all
}

func TestPartsAreMaximalAndFew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 70; n++ {
		tree := NewTree(n)
		for _, r := range append(cuts(random, n), Range{0, n}) {
			parts := tree.Parts(r.Lo, r.Hi)
			end := r.Lo
			for _, p := range parts {
				v := tree.vertices[p]
				if v.lo != end || tree.Below(p).Len() != v.hi-v.lo {
					t.Fatalf("n=%d %v: parts %v leave a gap at %d", n, r, parts, end)
				}
				end = v.hi
				for above, u := range tree.vertices {
					if above != p && u.lo <= v.lo && v.hi <= u.hi && r.Lo <= u.lo && u.hi <= r.Hi && above >= n {
						t.Fatalf("n=%d %v: part %d is inside %d, which is whole too", n, r, p, above)
					}
				}
			}
			if end != r.Hi || len(parts) > max(1, 2*bits.Len(uint(n))) {
				t.Fatalf("n=%d %v: %d parts, end at %d", n, r, len(parts), end)
			}
		}
	}
}

// For every order of arrival and every distribution of the leaves over workers
// and hosts, the sum has the bits of the recursive sum without absent leaves.
func TestReductionMatchesRecursiveSum(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	add := func(a, b *float32) *float32 { sum := *a + *b; return &sum }
	for n := 1; n <= 33; n++ {
		tree := NewTree(n)
		var inputs []int
		for _, r := range cuts(random, n) {
			inputs = append(inputs, tree.Parts(r.Lo, r.Hi)...)
		}
		run := NewReduction(NewPlan(tree, inputs, []int{tree.Root()}), add)
		for range 4 { // the same Reduction is used for several sums
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(math.Ldexp(random.Float64()-0.5, random.IntN(40)-20))
				if random.IntN(4) == 0 {
					x[i] = float32(math.NaN())
				}
			}
			var all sync.WaitGroup
			completed := make(chan *float32, len(inputs))
			for _, i := range random.Perm(len(inputs)) {
				v := tree.vertices[inputs[i]]
				part := recursiveSum(x[v.lo:v.hi])
				sum := &part
				if part != part {
					sum = nil
				}
				all.Go(func() {
					if _, total, done := run.Arrive(i, sum); done {
						completed <- total
					}
				})
			}
			all.Wait()
			want := recursiveSum(x)
			if len(completed) != 1 {
				t.Fatalf("n=%d: completed %d times", n, len(completed))
			}
			if got := <-completed; (got != nil) != (want == want) || got != nil && math.Float32bits(*got) != math.Float32bits(want) {
				t.Fatalf("n=%d: got %v, want %v", n, got, want)
			}
		}
	}
}

// An absent sum is not replaced by zero, because adding zero to -0 would lose
// the sign.
func TestAbsentSumIsNotZero(t *testing.T) {
	tree := NewTree(2)
	run := NewReduction(NewPlan(tree, []int{0, 1}, []int{tree.Root()}), func(a, b *float64) *float64 { return nil })
	run.Arrive(0, nil)
	zero := math.Copysign(0, -1)
	_, got, done := run.Arrive(1, &zero)
	if !done || got == nil || !math.Signbit(*got) {
		t.Errorf("got %+v, want -0", got)
	}
}

func TestRosterCoversEachVirtualWorkerOnce(t *testing.T) {
	for _, mode := range []string{"sync", "async", "ssp:2", "group:2", "backup:1"} {
		d := in(mode, example(7, 3))
		r := NewRoster(server0(0), &d)
		var leaves []int
		for g, members := range r.Groups {
			inputs := 0
			for i := members.Lo; i < members.Hi; i++ {
				c := r.Contributors[i]
				if c.Group != g || c.First != inputs || r.Contributor(c.Rank).Rank != c.Rank {
					t.Errorf("%s: contributor %+v in group %d", mode, c, g)
				}
				inputs += len(c.Parts)
				for leaf := c.VirtualWorkers.Lo; leaf < c.VirtualWorkers.Hi; leaf++ {
					leaves = append(leaves, leaf)
				}
			}
			if len(r.Plans[g].Inputs) != inputs || !slices.Equal(r.Plans[g].Outputs, []int{r.Tree.Root()}) {
				t.Errorf("%s: plan %+v for %d inputs", mode, r.Plans[g], inputs)
			}
		}
		if !slices.Equal(leaves, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("%s: leaves %v", mode, leaves)
		}
	}
}
