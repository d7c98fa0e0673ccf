package optimizer

import (
	"math"
	"testing"

	"github.com/plx-run/plx/trainer/wire"
)

// closed lists for each rule a formula for a constant gradient: the value of
// the variable after n steps, starting from x.
var closedForms = []struct {
	name     string
	settings Settings
	form     func(x, g, rate float64, n int) float64
}{
	{"sgd", Settings{Rule: SGD}, func(x, g, rate float64, n int) float64 {
		return x - float64(n)*rate*g
	}},
	{"momentum", Settings{Rule: Momentum, Momentum: 0.9}, func(x, g, rate float64, n int) float64 {
		// m_k = g(1-mu^k)/(1-mu), summed over k = 1..n
		return x - rate*g/0.1*(float64(n)-0.9*(1-math.Pow(0.9, float64(n)))/0.1)
	}},
	{"nesterov", Settings{Rule: Momentum, Momentum: 0.5, Nesterov: true}, func(x, g, rate float64, n int) float64 {
		// g + mu*m_k = g + g(1-mu^k), with mu = 1/2
		return x - rate*g*(2*float64(n)-(1-math.Pow(0.5, float64(n))))
	}},
	{"adagrad", Settings{Rule: Adagrad, Accumulator: 0.1}, func(x, g, rate float64, n int) float64 {
		for k := 1; k <= n; k++ {
			x -= rate * g / math.Sqrt(0.1+float64(k)*g*g)
		}
		return x
	}},
	{"adam", Settings{Rule: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, func(x, g, rate float64, n int) float64 {
		// with a constant gradient, both of Adam's means are exact after bias
		// correction
		return x - float64(n)*rate*g/(math.Abs(g)+1e-8)
	}},
	{"sgd, decay", Settings{Rule: SGD, Decay: 0.5}, shrinking},
	{"sgd, decoupled decay", Settings{Rule: SGD, Decay: 0.5, Decoupled: true}, shrinking},
	{"momentum 0, decay", Settings{Rule: Momentum, Decay: 0.5}, shrinking},
	{"adagrad, decoupled decay", Settings{Rule: Adagrad, Accumulator: 0.1, Decay: 0.5, Decoupled: true}, func(x, g, rate float64, n int) float64 {
		for k := 1; k <= n; k++ {
			x -= rate*0.5*x + rate*g/math.Sqrt(0.1+float64(k)*g*g)
		}
		return x
	}},
	{"adamw", Settings{Rule: Adam, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Decay: 0.5, Decoupled: true}, func(x, g, rate float64, n int) float64 {
		// like shrinking, but with the sign of the gradient instead of the
		// gradient
		return shrinking(x, g/(math.Abs(g)+1e-8), rate, n)
	}},
	{"average", Settings{Rule: Average, Momentum: 0.9}, func(x, g, rate float64, n int) float64 {
		return g + (x-g)*math.Pow(0.9, float64(n))
	}},
}

// shrinking returns the result of gradient descent with weight decay 0.5. In
// each step, the distance to the point at which decay and gradient cancel out
// is multiplied by 1 - rate/2.
func shrinking(x, g, rate float64, n int) float64 {
	return -g/0.5 + (x+g/0.5)*math.Pow(1-rate*0.5, float64(n))
}

func TestRulesMatchClosedForms(t *testing.T) {
	for _, c := range closedForms {
		t.Run(c.name, func(t *testing.T) {
			checkClosed[float32](t, c.settings, c.form, 2e-4)
			checkClosed[float64](t, c.settings, c.form, 1e-10)
		})
	}
}

func checkClosed[T wire.Float](t *testing.T, s Settings, form func(x, g, rate float64, n int) float64, within float64) {
	t.Helper()
	x, g := []T{1, -2, 0.5}, []T{0.3, -0.7, 2}
	want := make([]float64, len(x))
	for i := range x {
		want[i] = form(float64(x[i]), float64(g[i]), 0.01, 40)
	}
	state, err := New[T](s, len(x))
	if err != nil {
		t.Fatal(err)
	}
	for step := range uint64(40) {
		state.Apply(Step{Number: step, Rate: 0.01, Scale: 1}, x, g)
	}
	for i := range x {
		if d := math.Abs(float64(x[i]) - want[i]); !(d <= within) {
			t.Errorf("%T element %d: got %v, want %v", x[i], i, x[i], want[i])
		}
	}
}

func TestZeroGradientKeepsValues(t *testing.T) {
	for _, c := range closedForms {
		if c.settings.Decay != 0 || c.settings.Rule == Average {
			continue
		}
		state, _ := New[float32](c.settings, 1)
		x := []float32{3}
		state.Apply(Step{Rate: 0.1, Scale: 1}, x, []float32{0})
		if x[0] != 3 {
			t.Errorf("%s: a zero gradient moved 3 to %v", c.name, x[0])
		}
	}
}

func TestCheckRejectsInvalidSettings(t *testing.T) {
	for _, s := range []Settings{
		{}, {Rule: "newton"}, {Rule: Momentum, Momentum: 1}, {Rule: Momentum, Momentum: -0.1},
		{Rule: Adam, Beta1: math.NaN()}, {Rule: Adam, Beta2: 1.5}, {Rule: Adagrad, Accumulator: -1},
		{Rule: Adagrad, Epsilon: math.Inf(1)}, {Rule: SGD, Decay: -1}, {Rule: SGD, Decay: math.NaN()},
		{Rule: Average, Momentum: 1}, {Rule: Average, Momentum: 0.9, Decay: 0.1},
	} {
		if _, err := New[float32](s, 1); err == nil {
			t.Errorf("%+v: accepted", s)
		}
	}
}

func TestPowerMatchesMathPow(t *testing.T) {
	for n := range uint64(100) {
		if got, want := Power(0.9, n), math.Pow(0.9, float64(n)); math.Abs(got-want) > 1e-14 {
			t.Errorf("0.9^%d = %v, want %v", n, got, want)
		}
	}
}
