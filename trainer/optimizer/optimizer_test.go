package optimizer

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plx-run/plx/trainer/wire"
)

// closed maps a rule to its closed form under a constant gradient: the
// variable after n steps from x.
var closed = []struct {
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
		// after bias correction both means are the constant's own
		return x - float64(n)*rate*g/(math.Abs(g)+1e-8)
	}},
}

func TestClosedForms(t *testing.T) {
	for _, c := range closed {
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
		state.Apply(step, 0.01, x, g)
	}
	for i := range x {
		if d := math.Abs(float64(x[i]) - want[i]); !(d <= within) {
			t.Errorf("%T element %d: got %v, want %v", x[i], i, x[i], want[i])
		}
	}
}

// Cutting a variable changes no bit.
func TestPiecesAreExact(t *testing.T) {
	const n, cut = 101, 37
	for _, c := range closed {
		whole, _ := New[float32](c.settings, n)
		left, _ := New[float32](c.settings, cut)
		right, _ := New[float32](c.settings, n-cut)
		random := rand.New(rand.NewPCG(1, 2))
		a, g := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i] = random.Float32()
		}
		b := append([]float32(nil), a...)
		for step := range uint64(20) {
			for i := range g {
				g[i] = random.Float32() - 0.5
			}
			whole.Apply(step, 0.1, a, g)
			left.Apply(step, 0.1, b[:cut], g[:cut])
			right.Apply(step, 0.1, b[cut:], g[cut:])
		}
		for i := range a {
			if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
				t.Fatalf("%s: element %d: %v whole, %v in pieces", c.name, i, a[i], b[i])
			}
		}
	}
}

func TestZeroGradientIsHarmless(t *testing.T) {
	for _, c := range closed {
		state, _ := New[float32](c.settings, 1)
		x := []float32{3}
		state.Apply(0, 0.1, x, []float32{0})
		if x[0] != 3 {
			t.Errorf("%s: a zero gradient moved 3 to %v", c.name, x[0])
		}
	}
}

func TestCheck(t *testing.T) {
	for _, s := range []Settings{
		{}, {Rule: "newton"}, {Rule: Momentum, Momentum: 1}, {Rule: Momentum, Momentum: -0.1},
		{Rule: Adam, Beta1: math.NaN()}, {Rule: Adam, Beta2: 1.5}, {Rule: Adagrad, Accumulator: -1},
		{Rule: Adagrad, Epsilon: math.Inf(1)},
	} {
		if _, err := New[float32](s, 1); err == nil {
			t.Errorf("%+v: accepted", s)
		}
	}
}

func TestPower(t *testing.T) {
	for n := range uint64(100) {
		if got, want := power(0.9, n), math.Pow(0.9, float64(n)); math.Abs(got-want) > 1e-14 {
			t.Errorf("0.9^%d = %v, want %v", n, got, want)
		}
	}
}
