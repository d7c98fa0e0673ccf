package optimizer

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/trainer/wire"
)

// twin is a reference for one element: the formula of each rule as in its
// paper. Each product is rounded, so that it gives the same bits as the
// optimised loops.
type twin[T wire.Float] struct{ x, first, second T }

func (e *twin[T]) apply(s Settings, step Step, g T) {
	if s.Rule == Average {
		kept, new := T(T(s.Momentum)*e.x), T(T(1-s.Momentum)*g)
		e.x = kept + new
		return
	}
	g = T(T(step.Scale) * g)
	if s.Decoupled {
		by := T(T(step.Rate*s.Decay) * e.x)
		e.x -= by
	} else if s.Decay != 0 {
		by := T(T(s.Decay) * e.x)
		g += by
	}
	var by T
	switch rate := T(step.Rate); s.Rule {
	case SGD:
		by = T(rate * g)
	case Momentum:
		kept := T(T(s.Momentum) * e.first)
		e.first = kept + g
		by = T(rate * e.first)
		if ahead := T(T(s.Momentum) * e.first); s.Nesterov {
			by = T(rate * (g + ahead))
		}
	case Adagrad:
		squared := T(g * g)
		e.first += squared
		by = T(rate*g) / (T(math.Sqrt(float64(T(s.Accumulator)+e.first))) + T(s.Epsilon))
	case Adam:
		kept, new := T(T(s.Beta1)*e.first), T(T(1-s.Beta1)*g)
		e.first = kept + new
		kept, new = T(T(s.Beta2)*e.second), T(T(T(1-s.Beta2)*g)*g)
		e.second = kept + new
		corrected := T(step.Rate / (1 - Power(s.Beta1, step.Number+1)))
		spread := T(1 / math.Sqrt(1-Power(s.Beta2, step.Number+1)))
		scaled := T(T(math.Sqrt(float64(e.second))) * spread)
		by = T(corrected*e.first) / (scaled + T(s.Epsilon))
	}
	e.x -= by
}

// everySetting returns each rule combined with each kind of weight decay.
func everySetting() (all []Settings) {
	for _, s := range []Settings{
		{Rule: SGD}, {Rule: Momentum, Momentum: 0.9}, {Rule: Momentum, Momentum: 0.8, Nesterov: true},
		{Rule: Adagrad, Accumulator: 0.1, Epsilon: 1e-10}, {Rule: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8},
	} {
		l2, decoupled := s, s
		l2.Decay = 0.01
		decoupled.Decay, decoupled.Decoupled = 0.02, true
		all = append(all, s, l2, decoupled)
	}
	return append(all, Settings{Rule: Average, Momentum: 0.9})
}

// scaleOf returns the clipping factor of a step, which is less than 1 in some
// steps.
func scaleOf(step uint64) float64 {
	if step%3 == 1 {
		return 1
	}
	return 1 / (1.3 + float64(step))
}

func noise[T wire.Float](random *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(random.NormFloat64())
	}
	return x
}

// same fails the test unless got and want have the same bits.
func same[T wire.Float](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range want {
		if math.Float64bits(float64(got[i])) != math.Float64bits(float64(want[i])) {
			t.Fatalf("%s: element %d of %d: %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

func TestRulesMatchReferenceBitForBit(t *testing.T) {
	for _, s := range everySetting() {
		checkTwin[float32](t, s)
		checkTwin[float64](t, s)
	}
}

func checkTwin[T wire.Float](t *testing.T, s Settings) {
	t.Helper()
	const n = 600 // more than two of the blocks in which gradients are prepared
	random := rand.New(rand.NewPCG(1, 2))
	x, twins := noise[T](random, n), make([]twin[T], n)
	for i := range twins {
		twins[i].x = x[i]
	}
	state, err := New[T](s, n)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]T, n)
	for number := range uint64(20) {
		step := Step{Number: number, Rate: 0.1 / float64(number+1), Scale: scaleOf(number)}
		g := noise[T](random, n)
		given := append([]T(nil), g...)
		state.Apply(step, x, g)
		same(t, "the gradient of "+string(s.Rule), g, given)
		for i := range twins {
			twins[i].apply(s, step, g[i])
			want[i] = twins[i].x
		}
		same(t, string(s.Rule), x, want)
	}
}

// If a variable is cut into pieces at any place, the results must have the
// same bits.
func TestUpdateByPiecesIsExact(t *testing.T) {
	const n = 700
	random := rand.New(rand.NewPCG(3, 4))
	for _, s := range everySetting() {
		bounds := []int{0, random.IntN(n), random.IntN(n), n}
		bounds[1], bounds[2] = min(bounds[1], bounds[2]), max(bounds[1], bounds[2])
		whole, _ := New[float32](s, n)
		var pieces []*State[float32]
		for i := range 3 {
			piece, _ := New[float32](s, bounds[i+1]-bounds[i])
			pieces = append(pieces, piece)
		}
		a := noise[float32](random, n)
		b := append([]float32(nil), a...)
		for number := range uint64(10) {
			g := noise[float32](random, n)
			step := Step{Number: number, Rate: 0.1, Scale: scaleOf(number)}
			whole.Apply(step, a, g)
			for i, piece := range pieces {
				piece.Apply(step, b[bounds[i]:bounds[i+1]], g[bounds[i]:bounds[i+1]])
			}
			same(t, string(s.Rule), b, a)
		}
	}
}

// Step.Scale must have the same effect as a gradient multiplied and rounded
// before.
func TestScaleMultipliesTheGradient(t *testing.T) {
	for _, s := range everySetting() {
		random := rand.New(rand.NewPCG(5, 6))
		one, other := mustNew[float32](t, s, 300), mustNew[float32](t, s, 300)
		a := noise[float32](random, 300)
		b := append([]float32(nil), a...)
		for number := range uint64(5) {
			g := noise[float32](random, 300)
			one.Apply(Step{Number: number, Rate: 0.1, Scale: 0.3}, a, g)
			if s.Rule != Average {
				for i := range g {
					g[i] *= 0.3
				}
			}
			other.Apply(Step{Number: number, Rate: 0.1, Scale: 1}, b, g)
		}
		same(t, string(s.Rule), a, b)
	}
}

func mustNew[T wire.Float](t *testing.T, s Settings, n int) *State[T] {
	t.Helper()
	state, err := New[T](s, n)
	if err != nil {
		t.Fatal(err)
	}
	return state
}
