package trainer

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

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

// The initialisers of a Job must equal the functions of the same names with
// the job's seed and the node's name.
func TestJobInitialisersUseSeedAndName(t *testing.T) {
	j := soloJob(io.Discard, Config{Seed: 5})
	for name, c := range map[string]struct {
		got  gorgonia.NodeConsOpt
		want gorgonia.InitWFn
	}{
		"glorot":  {j.GlorotUniform(), GlorotUniform(5, "w")},
		"kaiming": {j.KaimingUniform(), KaimingUniform(5, "w")},
		"uniform": {j.Uniform(-2, 1), Uniform(5, "w", -2, 1)},
		"normal":  {j.Normal(1, 2), Normal(5, "w", 1, 2)},
	} {
		w := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithName("w"), gorgonia.WithShape(3, 5), c.got)
		if !slices.Equal(w.Value().Data().([]float32), c.want(tensor.Float32, 3, 5).([]float32)) {
			t.Errorf("%s: %v", name, w.Value())
		}
	}
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "give gorgonia.WithName before them") {
			t.Errorf("a node without a name: %q", said)
		}
	}()
	gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithShape(3, 5), j.GlorotUniform())
}

// With --digest or --virtual-workers, Parallelize must reject initial values
// that the clock seeds, because the bits would not be reproducible. This holds
// for frozen variables too, and for workers that build only one graph.
func TestClockSeededInitialValuesAreRefused(t *testing.T) {
	promises := map[string]Config{"digest": {Digest: true}, "virtual workers": {VirtualWorkers: 2}, "two replicas": {VirtualWorkers: 2, ParallelReplicas: 2}, "nothing": {}}
	for name, promise := range promises {
		for _, odd := range []string{"w", "frozen", "table", "none"} {
			_, err := soloJob(io.Discard, promise).Parallelize(t.Context(), func(g *gorgonia.ExprGraph, batch int) (Model, error) {
				m, err := regression{}.build(g, batch)
				first, seed := Zeros(), uint64(1)
				if odd == "frozen" {
					first = gorgonia.GlorotN(1)
				}
				frozen := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("frozen"), gorgonia.WithShape(3, 2), gorgonia.WithInit(first))
				sum := gorgonia.Must(gorgonia.Mean(frozen))
				m.Loss, m.Frozen = gorgonia.Must(gorgonia.Add(m.Loss, sum)), gorgonia.Nodes{frozen}
				if odd == "w" {
					w := m.Variables[0]
					gorgonia.WithInit(gorgonia.Uniform(-1, 1))(w)
				}
				if odd == "table" {
					seed = uint64(time.Now().UnixNano())
				}
				table := &Embedding{Name: "table", Rows: 3, Width: 2, Dtype: tensor.Float64, First: UniformRows(seed, -1, 1)}
				rows, lookErr := table.Lookup(g, "row", 2)
				m.Embeddings = []*Embedding{table}
				m.Loss = gorgonia.Must(gorgonia.Add(m.Loss, gorgonia.Must(gorgonia.Mean(rows))))
				return m, errors.Join(err, lookErr)
			}, SGD(0.1), GlobalBatch(4))
			want := odd != "none" && name != "nothing"
			if (err != nil) != want || want && !strings.Contains(err.Error(), `variable "`+odd+`" begins with other values each time`) {
				t.Errorf("%s, %s: %v", name, odd, err)
			}
		}
	}
}
