package collective

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// lengths returns slice lengths to test: 0, small ones, ones near the limits
// where the algorithm changes, and for up to five workers about one chunk per
// worker and more.
func lengths(random *rand.Rand, world int) []int {
	lengths := []int{0, 1, 2, 7, 1 + random.IntN(500), smallSize/8 - 1, smallSize / 8, smallSize/8 + 1, smallSize/4 + 1}
	if world > 5 {
		return lengths
	}
	lengths = append(lengths, chunkSize/8*world+random.IntN(9))
	if world > 3 {
		return lengths
	}
	return append(lengths, chunkSize/8*world+random.IntN(29999))
}

// values returns numbers that differ between ranks and have all magnitudes, so
// that another order of additions gives another sum.
func values[T Number](n, rank int, seed uint64) []T {
	random := rand.New(rand.NewPCG(seed, uint64(rank)))
	x := make([]T, n)
	for i := range x {
		x[i] = T((random.Float64() - 0.5) * float64(int64(1)<<random.IntN(40)))
	}
	return x
}

// workload contains the input of each worker of a test, and the expected
// results.
type workload[T Number] struct {
	by    [][]T // input of each worker, by rank
	whole []T   // inputs of all workers, one after the other
	sum   []T
	root  int
}

// newWorkload computes the expected sums one element after the other, in the
// order that the package documentation describes.
func newWorkload[T Number](n, world int, seed uint64) *workload[T] {
	w := &workload[T]{sum: make([]T, n), root: int(seed) % world}
	for rank := range world {
		w.by = append(w.by, values[T](n, rank, seed))
		w.whole = append(w.whole, w.by[rank]...)
	}
	var sum func(lo, hi, i int) T
	sum = func(lo, hi, i int) T {
		if hi == lo+1 {
			return w.by[lo][i]
		}
		mid := lo + (hi-lo)/2
		return sum(lo, mid, i) + sum(mid, hi, i)
	}
	for i := range w.sum {
		w.sum[i] = sum(0, world, i)
	}
	return w
}

func same[T Number](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	if bytes.Equal(raw(got), raw(want)) { // comparing bytes is much faster under the race detector
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// raw returns the memory of x as bytes.
func raw[T Number](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}

// check runs every collective on one worker and compares the results with the
// expected ones.
func (w *workload[T]) check(ctx context.Context, g *Group, rank int) error {
	for _, f := range []func(context.Context, *Group, int) error{w.broadcast, w.sums, w.gathers, w.scatter} {
		if err := f(ctx, g, rank); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload[T]) broadcast(ctx context.Context, g *Group, rank int) error {
	x := slices.Clone(w.by[rank])
	if err := g.Broadcast(ctx, x, w.root); err != nil {
		return err
	}
	return same("broadcast", x, w.by[w.root])
}

func (w *workload[T]) sums(ctx context.Context, g *Group, rank int) error {
	x := slices.Clone(w.by[rank])
	if err := g.AllReduce(ctx, x); err != nil {
		return err
	}
	if err := same("all-reduce", x, w.sum); err != nil {
		return err
	}
	lo, hi := Share(len(x), len(g.config.Addrs), rank)
	copy(x, w.by[rank])
	into := make([]T, hi-lo)
	if err := g.ReduceScatter(ctx, x, into); err != nil {
		return err
	}
	if err := same("reduce-scatter", into, w.sum[lo:hi]); err != nil {
		return err
	}
	if err := same("what reduce-scatter read", x, w.by[rank]); err != nil {
		return err
	}
	if err := g.ReduceScatter(ctx, x, x[lo:hi]); err != nil {
		return err
	}
	return same("reduce-scatter in place", x[lo:hi], w.sum[lo:hi])
}

func (w *workload[T]) gathers(ctx context.Context, g *Group, rank int) error {
	all := make([]T, len(w.whole))
	if err := g.AllGather(ctx, w.by[rank], all); err != nil {
		return err
	}
	if err := same("all-gather", all, w.whole); err != nil {
		return err
	}
	clear(all)
	if rank != w.root {
		all = nil
	}
	if err := g.Gather(ctx, w.by[rank], all, w.root); err != nil || rank != w.root {
		return err
	}
	return same("gather", all, w.whole)
}

func (w *workload[T]) scatter(ctx context.Context, g *Group, rank int) error {
	var from []T
	if rank == w.root {
		from = w.whole
	}
	into := make([]T, len(w.by[rank]))
	if err := g.Scatter(ctx, from, into, w.root); err != nil {
		return err
	}
	return same("scatter", into, w.by[rank])
}

func TestCollectivesMatchNaiveResults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, world := range []int{1, 2, 3, 5, 9} {
		random := rand.New(rand.NewPCG(7, uint64(world)))
		groups := newWorld(t, world, nil)
		for i, n := range lengths(random, world) {
			seed := uint64(i * 11)
			workloads := []func() func(context.Context, *Group, int) error{
				func() func(context.Context, *Group, int) error { return newWorkload[float32](n, world, seed).check },
				func() func(context.Context, *Group, int) error { return newWorkload[int64](n, world, seed).check },
				func() func(context.Context, *Group, int) error { return newWorkload[float64](n, world, seed).check },
			}
			if n > 1000 {
				workloads = workloads[i%3 : i%3+1]
			}
			for _, of := range workloads {
				must(t, groups, of())
			}
		}
		for _, g := range groups {
			g.Close()
		}
	}
}

// The slice is longer than the blocks in which a sum is computed. The sum must
// need only bounded additional memory.
func TestLongAllReduceUsesBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const world = 2
	n := 5*blockSize/16 + 12345
	groups := newWorld(t, world, nil)
	must(t, groups, newWorkload[float32](99_991, world, 5).repeated(n).sums)
	for rank, g := range groups {
		if n := len(g.scratch); n == 0 || n > blockSize {
			t.Errorf("worker %d has %d bytes", rank, n)
		}
	}
}

// repeated returns a workload whose slices of n elements repeat the shorter
// ones of w. The short length is a prime, so that no two blocks of a
// collective have the same content.
func (w *workload[T]) repeated(n int) *workload[T] {
	long := &workload[T]{sum: tile(w.sum, n), root: w.root}
	for _, x := range w.by {
		long.by = append(long.by, tile(x, n))
		long.whole = append(long.whole, long.by[len(long.by)-1]...)
	}
	return long
}

func tile[T any](x []T, n int) []T {
	long := make([]T, n)
	for at := 0; at < n; at += len(x) {
		copy(long[at:], x)
	}
	return long
}

func TestAllGatherBytesOfDifferentLengths(t *testing.T) {
	for world := 1; world <= 5; world++ {
		must(t, newWorld(t, world, nil), func(ctx context.Context, g *Group, rank int) error {
			for round, unit := range []int{0, 1, 1000, smallSize / 3, smallSize, 3 * chunkSize} {
				piece := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank + round)}, (rank+round)%4*unit) }
				got, err := g.AllGatherBytes(ctx, piece(rank), 3*unit)
				if err != nil {
					return err
				}
				for other := range world {
					if !bytes.Equal(got[other], piece(other)) {
						return fmt.Errorf("round %d: %d bytes from %d, want %d", round, len(got[other]), other, len(piece(other)))
					}
				}
			}
			return nil
		})
	}
}

// No worker may return from Barrier before all workers have called it.
func TestBarrierWaitsForAllWorkers(t *testing.T) {
	const world, rounds = 5, 200
	came := make(chan int, world*rounds)
	must(t, newWorld(t, world, nil), func(ctx context.Context, g *Group, rank int) error {
		for round := range rounds {
			came <- round
			if err := g.Barrier(ctx); err != nil {
				return err
			}
			if n := len(came); n < world*(round+1) {
				return fmt.Errorf("left barrier %d after %d of %d", round, n, world*(round+1))
			}
		}
		return nil
	})
}

func TestSharesCoverTheSlice(t *testing.T) {
	for world := 1; world < 12; world++ {
		for n := range 40 {
			next := 0
			for rank := range world {
				lo, hi := Share(n, world, rank)
				if lo != next || hi-lo != n/world && hi-lo != n/world+1 {
					t.Fatalf("share %d of %d among %d is [%d, %d)", rank, n, world, lo, hi)
				}
				next = hi
			}
			if next != n {
				t.Fatalf("%d among %d: ends at %d", n, world, next)
			}
		}
	}
}

func TestCollectivesAcceptEveryElementType(t *testing.T) {
	must(t, newWorld(t, 3, nil), func(ctx context.Context, g *Group, rank int) error {
		x := []int64{int64(rank), 1}
		if err := g.AllReduce(ctx, x); err != nil {
			return err
		}
		if err := g.Broadcast(ctx, []float32(nil), 1); err != nil {
			return err
		}
		part, whole := []float64{float64(rank)}, make([]float64, 3)
		if err := g.AllGather(ctx, part, whole); err != nil {
			return err
		}
		into := make([]float64, 1)
		if err := g.ReduceScatter(ctx, whole, into); err != nil {
			return err
		}
		var from, gathered any
		if rank == 2 {
			from, gathered = []float32{5, 6, 7}, make([]float64, 3)
		}
		scattered := make([]float32, 1)
		if err := g.Scatter(ctx, from, scattered, 2); err != nil {
			return err
		}
		if err := g.Gather(ctx, into, gathered, 2); err != nil {
			return err
		}
		if x[0] != 3 || x[1] != 3 || into[0] != float64(3*rank) || scattered[0] != float32(5+rank) ||
			rank == 2 && !slices.Equal(gathered.([]float64), []float64{0, 3, 6}) {
			return fmt.Errorf("got %v %v %v %v", x, into, scattered, gathered)
		}
		return nil
	})
}
