package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// ulps returns the distance of got from want in units in the last place of the
// float32 nearest to want.
func ulps(got float32, want float64) float64 {
	if math.IsNaN(want) || got != got {
		if math.IsNaN(want) && got != got {
			return 0
		}
		return math.Inf(1)
	}
	near := float32(want)
	if math.IsInf(float64(near), 0) || math.IsInf(float64(got), 0) {
		if near == got {
			return 0
		}
		return math.Inf(1)
	}
	size := math.Abs(float64(near))
	unit := float64(math.Nextafter32(float32(size), float32(math.Inf(1)))) - size
	if math.IsInf(unit, 0) {
		unit = math.Ldexp(1, 104)
	}
	return math.Abs(float64(got)-want) / unit
}

func TestFloat32FunctionsAreAccurate(t *testing.T) {
	testFunctions32(t, 10, 1<<15) // the long test checks more numbers
}

// testFunctions32 checks each function on each numbers of every sign, exponent
// and first bits of the mantissa, and on usual random numbers of ordinary
// size.
func testFunctions32(t *testing.T, each, usual int) {
	for _, c := range []struct {
		name  string
		f     func(float32) float32
		exact func(float64) float64
		bound float64
	}{
		{"exp", exp32, math.Exp, 0.6},
		{"expm1", expm132, math.Expm1, 0.6},
		{"tanh", tanh32, math.Tanh, 0.6},
		{"sigmoid", sigmoid32, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 0.6},
		{"log", log32, math.Log, 0.6},
		{"log1p", log1p32, math.Log1p, 0.6},
		{"softplus", softplus32, func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }, 0.6},
	} {
		t.Run(c.name, func(t *testing.T) {
			worst, at := 0.0, float32(0)
			try := func(x float32) {
				if u := ulps(c.f(x), c.exact(float64(x))); !(u <= worst) {
					worst, at = u, x
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			for high := range 1 << 12 { // high is a sign, an exponent and the first bits of the mantissa
				for range each {
					try(math.Float32frombits(uint32(high)<<20 | random.Uint32()>>12))
				}
			}
			for range usual {
				try(float32((random.Float64()*2 - 1) * 20))
			}
			for _, x := range []float32{0, float32(math.Copysign(0, -1)), 1, -1, math.MaxFloat32, -math.MaxFloat32,
				math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.Inf(-1))} {
				try(x)
			}
			for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001} {
				if y := c.f(math.Float32frombits(bits)); y == y {
					t.Errorf("of NaN %#x it gives %v", bits, y)
				}
			}
			t.Logf("largest error %.4f ulp at %v", worst, at)
			if worst > c.bound {
				t.Errorf("%v gives %v, want %v: off by %v ulp, want at most %v", at, c.f(at), c.exact(float64(at)), worst, c.bound)
			}
		})
	}
}

var unaryCodes = []string{"abs", "sign", "ceil", "floor", "sin", "cos", "exp", "ln", "log2", "neg", "square", "sqrt",
	"inv", "invSqrt", "cube", "tanh", "sigmoid", "log1p", "expm1", "softplus"}

// The bits of an element must not depend on its neighbours or on its position
// in memory.
func TestSameBitsAtEveryPosition(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	all := make([]float32, 4099)
	for i := range all {
		all[i] = float32(math.Abs(random.NormFloat64()) + 0.01)
	}
	for _, code := range unaryCodes {
		loop := unaryLoop[float32](code)
		whole, one := make([]float32, len(all)), make([]float32, 1)
		loop(whole, all)
		for range 300 {
			from := random.IntN(len(all))
			to := from + 1 + random.IntN(min(70, len(all)-from))
			part := make([]float32, to-from)
			loop(part, all[from:to])
			for i := range part {
				loop(one, all[from+i:from+i+1])
				if part[i] != whole[from+i] || one[0] != whole[from+i] {
					t.Fatalf("%s: element %d is %v alone, %v in a part, %v in the whole", code, from+i, one[0], part[i], whole[from+i])
				}
			}
		}
	}
}

func BenchmarkTanh(b *testing.B) {
	x, y := make([]float32, 1<<14), make([]float32, 1<<14)
	for i := range x {
		x[i] = float32(rand.NormFloat64())
	}
	for name, loop := range map[string]func(out, a []float32){
		"here": unaryLoop[float32]("tanh"),
		"math": apply(func(x float32) float32 { return float32(math.Tanh(float64(x))) }),
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				loop(y, x)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(x)), "ns/element")
		})
	}
}
