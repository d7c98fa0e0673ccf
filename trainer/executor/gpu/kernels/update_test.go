package kernels_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	. "github.com/plx-run/plx/trainer/executor/gpu/kernels"
	"github.com/plx-run/plx/trainer/optimizer"
)

// rules returns every optimiser rule, each without and with every kind of
// weight decay.
func rules() (all []optimizer.Settings) {
	for _, s := range []optimizer.Settings{
		{Rule: optimizer.SGD}, {Rule: optimizer.Momentum, Momentum: 0.9}, {Rule: optimizer.Momentum, Momentum: 0.8, Nesterov: true},
		{Rule: optimizer.Adagrad, Accumulator: 0.1, Epsilon: 1e-10}, {Rule: optimizer.Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	} {
		l2, decoupled := s, s
		l2.Decay = 0.01
		decoupled.Decay, decoupled.Decoupled = 0.02, true
		all = append(all, s, l2, decoupled)
	}
	return append(all, optimizer.Settings{Rule: optimizer.Average, Momentum: 0.9})
}

// A few steps, some of them clipped, give the same bits as package optimizer,
// in the variable and in the optimiser's slots.
func TestUpdatesMatchOptimizer(t *testing.T) {
	for _, s := range rules() {
		bothTypes(t, fmt.Sprintf("%+v", s), func(t *testing.T) { checkUpdates[float32](t, s) }, func(t *testing.T) { checkUpdates[float64](t, s) })
	}
}

func checkUpdates[T float](t *testing.T, s optimizer.Settings) {
	const n = 257
	state, err := optimizer.New[T](s, n)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Update(number[T](), s, n)
	if err != nil {
		t.Fatal(err)
	}
	want := noise[T](1, n)
	x := append([]T(nil), want...)
	slots := make([][]T, s.Slots())
	for i := range slots {
		slots[i] = make([]T, n)
	}
	for number := range uint64(5) {
		step := optimizer.Step{Number: number, Rate: 0.1 / float64(number+1), Scale: 1}
		if number%2 == 1 {
			step.Scale = 0.37
		}
		g := noise[T](2+number, n)
		state.Apply(step, want, g)
		before := append([]T(nil), x...)
		run(t, o, s, step, 0, x, g, slots)
		same(t, fmt.Sprint("variable before step ", number), Bound{}, x, before)
		run(t, o, s, step, 1, x, g, slots)
		same(t, fmt.Sprint("variable after step ", number), Bound{}, x, want)
		for i := range slots {
			same(t, fmt.Sprintf("slot %d after step %d", i, number), Bound{}, slots[i], state.Slots()[i])
		}
	}
}

func run[T float](t *testing.T, o Operation, s optimizer.Settings, step optimizer.Step, goes uint32, x, g []T, slots [][]T) {
	t.Helper()
	constants := make([]byte, ConstantsBytes)
	PutUpdateConstants(constants, number[T](), s, step)
	operands := [][]byte{bytesOf(x), bytesOf(g), constants, bytesOf([]uint32{goes})}
	for _, slot := range slots {
		operands = append(operands, bytesOf(slot))
	}
	execute(t, o, 0, operands...)
}

// Finite returns 1 for a finite number, and 0 for NaN and infinity, which
// prevents an update.
func TestUpdateNeedsFiniteLoss(t *testing.T) {
	bothTypes(t, "", checkFinite[float32], checkFinite[float64])
}

func checkFinite[T float](t *testing.T) {
	for x, want := range map[float64]uint32{0: 1, -2.5: 1, 1e38: 1, math.Inf(1): 0, math.Inf(-1): 0} {
		wantFinite(t, T(x), want)
	}
	wantFinite(t, T(math.NaN()), 0)
}

func wantFinite[T float](t *testing.T, x T, want uint32) {
	t.Helper()
	got := []uint32{7}
	execute(t, Finite(number[T]()), 0, bytesOf(got), bytesOf([]T{x}))
	if got[0] != want {
		t.Errorf("finite of %v is %d, want %d", x, got[0], want)
	}
}

// Clip gives all updates the same scale. The scale comes from the sum of the
// squares in their order, as in aggregate.Norm.
func TestClipScalesAllUpdates(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 1000} {
		squares, sum := noise[float64](3, n), 0.0
		for i := range squares {
			squares[i] *= squares[i]
			sum += squares[i]
		}
		for _, limit := range []float64{0.3, 1e9, math.Inf(1)} {
			factor := 1.0
			if norm := math.Sqrt(sum); norm > limit {
				factor = limit / norm
			}
			got := make([]byte, 300*ConstantsBytes)
			want := make([]byte, len(got))
			for i := range 300 {
				of := Type(i % 2)
				PutUpdateConstants(got[i*ConstantsBytes:], of, optimizer.Settings{Rule: optimizer.SGD}, optimizer.Step{Rate: 0.1, Scale: 7})
				PutUpdateConstants(want[i*ConstantsBytes:], of, optimizer.Settings{Rule: optimizer.SGD}, optimizer.Step{Rate: 0.1, Scale: factor})
			}
			o, err := Clip(n, 300, limit)
			if err != nil {
				t.Fatal(err)
			}
			execute(t, o, 0, got, bytesOf(squares))
			if !bytes.Equal(got, want) {
				t.Errorf("%d squares, limit %v: other constants than for the factor %v", n, limit, factor)
			}
		}
	}
}
