package trainer

import (
	"math"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestInitialisersDependOnSeedAndNameAlone(t *testing.T) {
	draw := func(f gorgonia.InitWFn) []float32 { return f(tensor.Float32, 30, 20).([]float32) }
	for name, make := range map[string]func(seed uint64, name string) gorgonia.InitWFn{
		"kaiming": KaimingUniform, "glorot": GlorotUniform,
		"uniform": func(s uint64, n string) gorgonia.InitWFn { return Uniform(s, n, -1, 1) },
		"normal":  func(s uint64, n string) gorgonia.InitWFn { return Normal(s, n, 0, 1) },
	} {
		a := draw(make(1, "w"))
		if !slices.Equal(a, draw(make(1, "w"))) {
			t.Errorf("%s: the second draw differs", name)
		}
		if slices.Equal(a, draw(make(2, "w"))) || slices.Equal(a, draw(make(1, "v"))) {
			t.Errorf("%s: another seed or name gives the same", name)
		}
	}
}

func TestInitialisersDistribution(t *testing.T) {
	for _, c := range []struct {
		name            string
		f               gorgonia.InitWFn
		low, high       float64
		mean, deviation float64
	}{
		{"zeros", Zeros(), 0, 0, 0, 0},
		{"uniform", Uniform(3, "u", 2, 6), 2, 6, 4, 4 / math.Sqrt(12)},
		{"normal", Normal(3, "n", -1, 0.5), -9, 9, -1, 0.5},
		{"kaiming", KaimingUniform(3, "k"), -math.Sqrt(6. / 200), math.Sqrt(6. / 200), 0, math.Sqrt(2. / 200)},
		{"glorot", GlorotUniform(3, "g"), -math.Sqrt(6. / 300), math.Sqrt(6. / 300), 0, math.Sqrt(2. / 300)},
	} {
		x := c.f(tensor.Float64, 200, 100).([]float64)
		var sum, squares float64
		for _, v := range x {
			sum += v
			squares += v * v
			if v < c.low || v > c.high {
				t.Fatalf("%s: %v is outside [%v, %v]", c.name, v, c.low, c.high)
			}
		}
		mean := sum / float64(len(x))
		deviation := math.Sqrt(max(0, squares/float64(len(x))-mean*mean))
		if math.Abs(mean-c.mean) > 0.03*c.deviation || math.Abs(deviation-c.deviation) > 0.03*c.deviation {
			t.Errorf("%s: mean %v deviation %v, want %v and %v", c.name, mean, deviation, c.mean, c.deviation)
		}
	}
	if in, out := fans([]int{8, 3, 5, 5}); in != 75 || out != 200 {
		t.Errorf("fans of a filter: %v, %v", in, out)
	}
}
