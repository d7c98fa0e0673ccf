package optimizer

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/trainer/wire"
)

// ApplyRows must update a row like a separate variable that only takes part in
// the steps that have a gradient for it. All other rows must keep their bits.
func TestRowsUpdateLikeSingleVariables(t *testing.T) {
	for _, s := range everySetting() {
		for _, width := range []int{1, 3, 300} {
			t.Run(fmt.Sprintf("%s decay %v %v width %d", s.Rule, s.Decay, s.Decoupled, width), func(t *testing.T) {
				checkRows[float32](t, s, width)
				checkRows[float64](t, s, width)
			})
		}
	}
}

func checkRows[T wire.Float](t *testing.T, s Settings, width int) {
	t.Helper()
	const rows, first = 40, 1000
	random := rand.New(rand.NewPCG(7, uint64(width)))
	x := noise[T](random, rows*width)
	want := append([]T(nil), x...)
	table := mustNew[T](t, s, len(x))
	var own []*State[T]
	for range rows {
		own = append(own, mustNew[T](t, s, width))
	}
	for number := range uint64(12) {
		step := Step{Number: number, Rate: 0.1, Scale: scaleOf(number)}
		var index []int64
		var g []T
		for row := range rows - 1 { // the last row never gets a gradient
			if random.IntN(4) == 0 {
				index = append(index, int64(first+row))
				more := noise[T](random, width)
				own[row].Apply(step, want[row*width:(row+1)*width], more)
				g = append(g, more...)
			}
		}
		table.ApplyRows(step, x, first, index, g)
		same(t, "values", x, want)
		for i, slot := range table.Slots() {
			for row := range rows {
				same(t, "state", slot[row*width:(row+1)*width], own[row].Slots()[i])
			}
		}
	}
	for _, slot := range table.Slots() {
		same(t, "state of an untouched row", slot[(rows-1)*width:], make([]T, width))
	}
}

func TestSlotsPerRule(t *testing.T) {
	for rule, want := range map[Rule]int{SGD: 0, Momentum: 1, Adagrad: 1, Adam: 2, Average: 0} {
		slots := mustNew[float32](t, Settings{Rule: rule}, 5).Slots()
		if len(slots) != want {
			t.Errorf("%s: %d slots, want %d", rule, len(slots), want)
		}
		for _, slot := range slots {
			if len(slot) != 5 {
				t.Errorf("%s: a slot of %d elements, want 5", rule, len(slot))
			}
		}
	}
}

// A shard whose values and optimiser state are copied must continue with the
// same results.
func TestSlotsContainTheWholeState(t *testing.T) {
	for _, s := range everySetting() {
		random := rand.New(rand.NewPCG(8, 9))
		here := mustNew[float64](t, s, 50)
		a := noise[float64](random, 50)
		here.Apply(Step{Rate: 0.1, Scale: 1}, a, noise[float64](random, 50))
		there, b := mustNew[float64](t, s, 50), append([]float64(nil), a...)
		for i, slot := range there.Slots() {
			copy(slot, here.Slots()[i])
		}
		g := noise[float64](random, 50)
		here.Apply(Step{Number: 1, Rate: 0.1, Scale: 1}, a, g)
		there.Apply(Step{Number: 1, Rate: 0.1, Scale: 1}, b, g)
		same(t, string(s.Rule), b, a)
	}
}

func TestSumOfSquaresIsExactlyOrdered(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 11))
	for n := range 40 {
		checkSquares(t, noise[float32](random, n))
		checkSquares(t, noise[float64](random, n))
	}
	checkSquares(t, noise[float32](random, 4099))
}

// checkSquares compares SumOfSquares bit for bit with four partial sums as the
// documentation defines them, and approximately with exact arithmetic.
func checkSquares[T wire.Float](t *testing.T, g []T) {
	t.Helper()
	var parts [4]float64
	exact := new(big.Float).SetPrec(2000)
	for i, x := range g {
		product := float64(float64(x) * float64(x))
		parts[i%4] += product
		y := new(big.Float).SetPrec(2000).SetFloat64(float64(x))
		exact.Add(exact, y.Mul(y, y))
	}
	want := (parts[0] + parts[1]) + (parts[2] + parts[3])
	got := SumOfSquares(g)
	if math.Float64bits(got) != math.Float64bits(want) {
		t.Fatalf("%d elements: %v, want %v", len(g), got, want)
	}
	if near, _ := exact.Float64(); math.Abs(got-near) > 1e-12*(1+near) {
		t.Fatalf("%d elements: %v, exactly %v", len(g), got, near)
	}
}
