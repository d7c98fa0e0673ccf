package mesh

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// lengths are of slices: none, little, about what goes with an announcement
// and about a chunk for each worker, and more.
func lengths(random *rand.Rand, world int) []int {
	return []int{0, 1, 2, 7, 1 + random.IntN(500), eagerSize/8 - 1, eagerSize / 8, eagerSize/8 + 1, eagerSize/4 + 1,
		chunkSize/8*world + random.IntN(9), chunkSize/4*world + random.IntN(9999)}
}

// values are different on every rank and of every size, so that the order of
// additions shows in a sum.
func values[T Number](n, rank int, seed uint64) []T {
	random := rand.New(rand.NewPCG(seed, uint64(rank)))
	x := make([]T, n)
	for i := range x {
		x[i] = T((random.Float64() - 0.5) * float64(int64(1)<<random.IntN(40)))
	}
	return x
}

// naive adds as the package's documentation says, one element after the other.
func naive[T Number](n, world int, seed uint64) []T {
	all := make([][]T, world)
	for rank := range all {
		all[rank] = values[T](n, rank, seed)
	}
	var sum func(lo, hi, i int) T
	sum = func(lo, hi, i int) T {
		if hi == lo+1 {
			return all[lo][i]
		}
		mid := lo + (hi-lo)/2
		return sum(lo, mid, i) + sum(mid, hi, i)
	}
	out := make([]T, n)
	for i := range out {
		out[i] = sum(0, world, i)
	}
	return out
}

func same[T Number](what string, got, want []T) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

func joined[T Number](n, world int, seed uint64) (whole []T) {
	for rank := range world {
		whole = append(whole, values[T](n, rank, seed)...)
	}
	return whole
}

// checkAll runs every collective on slices of n.
func checkAll[T Number](ctx context.Context, m *Mesh, n int, seed uint64) error {
	world, rank := m.world(), m.config.Rank
	root, mine := int(seed)%world, values[T](n, rank, seed)
	sum, whole := naive[T](n, world, seed), joined[T](n, world, seed)
	x := slices.Clone(mine)
	if err := Broadcast(ctx, m, x, root); err != nil {
		return err
	}
	if err := same("broadcast", x, values[T](n, root, seed)); err != nil {
		return err
	}
	x = slices.Clone(mine)
	if err := AllReduce(ctx, m, x); err != nil {
		return err
	}
	if err := same("all-reduce", x, sum); err != nil {
		return err
	}
	lo, hi := Share(n, world, rank)
	x, into := slices.Clone(mine), make([]T, hi-lo)
	if err := ReduceScatter(ctx, m, x, into); err != nil {
		return err
	}
	if err := same("reduce-scatter", into, sum[lo:hi]); err != nil {
		return err
	}
	if err := same("what reduce-scatter read", x, mine); err != nil {
		return err
	}
	if err := ReduceScatter(ctx, m, x, x[lo:hi]); err != nil {
		return err
	}
	if err := same("reduce-scatter in place", x[lo:hi], sum[lo:hi]); err != nil {
		return err
	}
	all := make([]T, world*n)
	if err := AllGather(ctx, m, mine, all); err != nil {
		return err
	}
	if err := same("all-gather", all, whole); err != nil {
		return err
	}
	return checkRooted(ctx, m, mine, whole, root)
}

func checkRooted[T Number](ctx context.Context, m *Mesh, mine, whole []T, root int) error {
	var from, gathered []T
	if m.config.Rank == root {
		from, gathered = whole, make([]T, len(whole))
	}
	into := make([]T, len(mine))
	if err := Scatter(ctx, m, from, into, root); err != nil {
		return err
	}
	if err := same("scatter", into, mine); err != nil {
		return err
	}
	if err := Gather(ctx, m, mine, gathered, root); err != nil {
		return err
	}
	if m.config.Rank == root {
		return same("gather", gathered, whole)
	}
	return nil
}

func TestCollectivesAreAsNaive(t *testing.T) {
	for world := 1; world <= 9; world++ {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			random := rand.New(rand.NewPCG(7, uint64(world)))
			sizes := lengths(random, world)
			must(t, newWorld(t, world, nil), func(ctx context.Context, m *Mesh, rank int) error {
				for i, n := range sizes {
					seed := uint64(i * 11)
					check := []func(context.Context, *Mesh, int, uint64) error{checkAll[float32], checkAll[float64], checkAll[int64]}
					if n > 1000 {
						check = check[i%3 : i%3+1]
					}
					for _, c := range check {
						if err := c(ctx, m, n, seed); err != nil {
							return fmt.Errorf("n=%d: %w", n, err)
						}
					}
					if err := m.Barrier(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// More than the window of chunks that may be under way.
func TestLongSlices(t *testing.T) {
	for _, world := range []int{2, 3} {
		n := world*(3*window*chunkSize)/4 + 12345
		must(t, newWorld(t, world, nil), func(ctx context.Context, m *Mesh, rank int) error {
			return checkAll[float32](ctx, m, n, 5)
		})
	}
}

func TestPiecesOfAnyLength(t *testing.T) {
	for world := 1; world <= 5; world++ {
		must(t, newWorld(t, world, nil), func(ctx context.Context, m *Mesh, rank int) error {
			for round, unit := range []int{0, 1, 1000, eagerSize / 3, eagerSize, 3 * chunkSize} {
				piece := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank + round)}, (rank+round)%4*unit) }
				got, err := AllGatherBytes(ctx, m, piece(rank), 3*unit)
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

// Nobody leaves a barrier before everybody has come.
func TestBarrier(t *testing.T) {
	const world, rounds = 5, 200
	came := make(chan int, world*rounds)
	must(t, newWorld(t, world, nil), func(ctx context.Context, m *Mesh, rank int) error {
		for round := range rounds {
			came <- round
			if err := m.Barrier(ctx); err != nil {
				return err
			}
			if n := len(came); n < world*(round+1) {
				return fmt.Errorf("left barrier %d after %d of %d", round, n, world*(round+1))
			}
		}
		return nil
	})
}

func TestShareCoversEverything(t *testing.T) {
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

func TestSlicesOfAnyType(t *testing.T) {
	must(t, newWorld(t, 3, nil), func(ctx context.Context, m *Mesh, rank int) error {
		x := []int64{int64(rank), 1}
		if err := m.AllReduce(ctx, x); err != nil {
			return err
		}
		if err := m.Broadcast(ctx, []float32(nil), 1); err != nil {
			return err
		}
		part, whole := []float64{float64(rank)}, make([]float64, 3)
		if err := m.AllGather(ctx, part, whole); err != nil {
			return err
		}
		into := make([]float64, 1)
		if err := m.ReduceScatter(ctx, whole, into); err != nil {
			return err
		}
		var from, gathered any
		if rank == 2 {
			from, gathered = []float32{5, 6, 7}, make([]float64, 3)
		}
		scattered := make([]float32, 1)
		if err := m.Scatter(ctx, from, scattered, 2); err != nil {
			return err
		}
		if err := m.Gather(ctx, into, gathered, 2); err != nil {
			return err
		}
		if x[0] != 3 || x[1] != 3 || into[0] != float64(3*rank) || scattered[0] != float32(5+rank) ||
			rank == 2 && !slices.Equal(gathered.([]float64), []float64{0, 3, 6}) {
			return fmt.Errorf("got %v %v %v %v", x, into, scattered, gathered)
		}
		return nil
	})
}
