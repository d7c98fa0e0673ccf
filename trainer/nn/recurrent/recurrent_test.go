package recurrent

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plx-run/plx/trainer/nn/matrix"
)

// layer holds the passes of an LSTM or a GRU, and a reference implementation
// of the layer.
type layer[T matrix.Float] struct {
	Sizes
	gates                    int // per unit
	shapes                   [][2]int
	trace, outputs, backward int                   // elements
	forward, out, back       Pass[T]               // their inputs: the layer's inputs; inputs and trace; inputs, trace and gradient of the outputs
	gradients                map[int]gradientOf[T] // passes of the inputs' gradients, without x and its weights, whose gradients are plain products
	twin                     func(in [][]float64) []float64
}

// gradientOf is the pass that computes the gradient of an input, and a list of
// the data that it reads: inputs, trace or the backward pass's result.
type gradientOf[T matrix.Float] struct {
	pass Pass[T]
	take func(in [][]T, trace, back []T) [][]T
}

func lstmLayer[T matrix.Float](s LSTM) layer[T] {
	l := layer[T]{Sizes: s.Sizes, gates: 4,
		shapes: [][2]int{{s.Rows(), s.In}, {s.In, 4 * s.Units}, {s.Width, 4 * s.Units}, {1, 4 * s.Units}},
		trace:  s.TraceLength(), outputs: s.OutputLength(), backward: s.BackwardLength(),
		forward: LSTMForward[T](s), out: LSTMOutputs[T](s), back: LSTMBackward[T](s),
		twin: func(in [][]float64) []float64 { return lstmTwin(s, in) },
	}
	both := func(_ [][]T, trace, back []T) [][]T { return [][]T{trace, back} }
	only := func(_ [][]T, _, back []T) [][]T { return [][]T{back} }
	l.gradients = map[int]gradientOf[T]{2: {LSTMStateGradient[T](s), both}, 3: {LSTMBiasGradient[T](s), only}}
	if s.Projected {
		l.gradients[len(l.shapes)] = gradientOf[T]{LSTMProjectionGradient[T](s), both}
		l.shapes = append(l.shapes, [2]int{s.Units, s.Width})
	}
	if s.Started {
		at := len(l.shapes)
		l.shapes = append(l.shapes, [2]int{s.Batch, s.Width}, [2]int{s.Batch, s.Units})
		l.gradients[2] = gradientOf[T]{l.gradients[2].pass, func(in [][]T, trace, back []T) [][]T { return [][]T{trace, back, in[at]} }}
		l.gradients[at] = gradientOf[T]{LSTMFirstGradient[T](s), func(in [][]T, _, back []T) [][]T { return [][]T{in[2], back} }}
		l.gradients[at+1] = gradientOf[T]{LSTMFirstCellGradient[T](s), only}
	}
	return l
}

func gruLayer[T matrix.Float](s GRU) layer[T] {
	only := func(_ [][]T, _, back []T) [][]T { return [][]T{back} }
	l := layer[T]{Sizes: s.Sizes, gates: 3,
		shapes: [][2]int{{s.Rows(), s.In}, {s.In, 3 * s.Units}, {s.Units, 3 * s.Units}, {1, 3 * s.Units}},
		trace:  s.TraceLength(), outputs: s.OutputLength(), backward: s.BackwardLength(),
		forward: GRUForward[T](s), out: GRUOutputs[T](s), back: GRUBackward[T](s),
		gradients: map[int]gradientOf[T]{
			2: {GRUStateGradient[T](s), func(in [][]T, trace, back []T) [][]T { return append([][]T{trace, back}, in[4:]...) }},
			3: {GRUBiasGradient[T](s), only},
		},
		twin: func(in [][]float64) []float64 { return gruTwin(s, in) },
	}
	if s.Started {
		l.shapes = append(l.shapes, [2]int{s.Batch, s.Units})
		l.gradients[4] = gradientOf[T]{GRUFirstGradient[T](s), only}
	}
	return l
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// product multiplies a row vector by the matrix w, which has n columns.
func product(row, w []float64, n int) []float64 {
	sum := make([]float64, n)
	for k, v := range row {
		for j := range sum {
			sum[j] += v * w[k*n+j]
		}
	}
	return sum
}

// lstmTwin computes an LSTM one sequence after the other, directly by its
// formulas. The gates are input, forget, candidate and output.
func lstmTwin(s LSTM, in [][]float64) []float64 {
	var outs, lasts, cells []float64
	for i := range s.Batch {
		h, c := make([]float64, s.Width), make([]float64, s.Units)
		if s.Started {
			first := in[len(in)-2:]
			copy(h, first[0][i*s.Width:])
			copy(c, first[1][i*s.Units:])
		}
		for t := range s.Steps {
			x := product(in[0][(i*s.Steps+t)*s.In:][:s.In], in[1], 4*s.Units)
			state, hidden := product(h, in[2], 4*s.Units), make([]float64, s.Units)
			gate := func(which, k int) float64 {
				g := which*s.Units + k
				return x[g] + state[g] + in[3][g]
			}
			for k := range c {
				c[k] = sigmoid(gate(1, k)+s.Forget)*c[k] + sigmoid(gate(0, k))*math.Tanh(gate(2, k))
				hidden[k] = sigmoid(gate(3, k)) * math.Tanh(c[k])
			}
			if h = hidden; s.Projected {
				h = product(hidden, in[4], s.Width)
			}
			outs = append(outs, h...)
		}
		lasts, cells = append(lasts, h...), append(cells, c...)
	}
	return slices.Concat(outs, lasts, cells)
}

// gruTwin computes a GRU directly by its formulas. The gates are reset, update
// and candidate; the reset gate is applied after the matrix product.
func gruTwin(s GRU, in [][]float64) []float64 {
	var outs, lasts []float64
	for i := range s.Batch {
		h := make([]float64, s.Units)
		if s.Started {
			copy(h, in[4][i*s.Units:])
		}
		for t := range s.Steps {
			x := product(in[0][(i*s.Steps+t)*s.In:][:s.In], in[1], 3*s.Units)
			state, next := product(h, in[2], 3*s.Units), make([]float64, s.Units)
			for k := range next {
				reset := sigmoid(x[k] + in[3][k] + state[k])
				update := sigmoid(x[s.Units+k] + in[3][s.Units+k] + state[s.Units+k])
				candidate := math.Tanh(x[2*s.Units+k] + in[3][2*s.Units+k] + reset*state[2*s.Units+k])
				next[k] = (1-update)*candidate + update*h[k]
			}
			h = next
			outs = append(outs, h...)
		}
		lasts = append(lasts, h...)
	}
	return slices.Concat(outs, lasts)
}

// inputs returns random values for the layer's inputs.
func (l layer[T]) inputs(random *rand.Rand) (in [][]float64) {
	for _, shape := range l.shapes {
		in = append(in, normal(random, shape[0]*shape[1]))
	}
	return in
}

func normal(random *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = random.NormFloat64()
	}
	return x
}

func converted[To, From matrix.Float](x []From) []To {
	y := make([]To, len(x))
	for i, v := range x {
		y[i] = To(v)
	}
	return y
}

// run runs a pass into memory that holds other numbers, to detect elements
// that the pass does not write.
func run[T matrix.Float](n int, p Pass[T], in ...[]T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(math.NaN())
	}
	p(out, in)
	return out
}

// all runs all passes, with dy64 as the gradient of the outputs. It returns
// the outputs and the gradients of all inputs.
func (l layer[T]) all(in64 [][]float64, dy64 []float64) (outputs []T, gradients [][]T) {
	var in [][]T
	for _, x := range in64 {
		in = append(in, converted[T](x))
	}
	trace := run(l.trace, l.forward, in...)
	outputs = run(l.outputs, l.out, append(slices.Clone(in), trace)...)
	back := run(l.backward, l.back, append(slices.Clone(in), trace, converted[T](dy64))...)
	for i, shape := range l.shapes {
		if of, ok := l.gradients[i]; ok {
			gradients = append(gradients, run(shape[0]*shape[1], of.pass, of.take(in, trace, back)...))
			continue
		}
		// The backward pass's result begins with the gradients of x's
		// contribution to the gates.
		n := l.gates * l.Units
		sum := make([]T, shape[0]*shape[1])
		for row := range l.Rows() {
			for g, d := range back[row*n:][:n] {
				for k := range l.In {
					if i == 0 {
						sum[row*l.In+k] += d * in[1][k*n+g]
					} else {
						sum[k*n+g] += d * in[0][row*l.In+k]
					}
				}
			}
		}
		gradients = append(gradients, sum)
	}
	return outputs, gradients
}

// near fails the test if the numbers differ by more than the tolerance, or if
// one is NaN.
func near[T matrix.Float](t *testing.T, what string, got []T, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if !(math.Abs(float64(got[i])-w) <= tolerance*max(1, math.Abs(w))) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, got[i], w)
		}
	}
}

// differences returns the gradient of the dot product of dy and the
// reference's outputs, by central differences.
func differences(twin func([][]float64) []float64, in [][]float64, dy []float64) (gradients [][]float64) {
	const h = 1e-5
	loss := func() (sum float64) {
		for i, y := range twin(in) {
			sum += y * dy[i]
		}
		return sum
	}
	for _, x := range in {
		gradient := make([]float64, len(x))
		for i, v := range x {
			x[i] = v + h
			above := loss()
			x[i] = v - h
			gradient[i] = (above - loss()) / (2 * h)
			x[i] = v
		}
		gradients = append(gradients, gradient)
	}
	return gradients
}

// testLayer compares a layer's passes with the reference, and its gradients
// with finite differences. It does so twice, because scratch memory from
// another run must not change the results.
func testLayer[T matrix.Float](t *testing.T, l layer[T], tolerance float64) {
	random := rand.New(rand.NewPCG(1, 2))
	for again := range 2 {
		in, dy := l.inputs(random), normal(random, l.outputs)
		outputs, gradients := l.all(in, dy)
		near(t, fmt.Sprintf("run %d: outputs", again), outputs, l.twin(in), tolerance)
		for i, want := range differences(l.twin, in, dy) {
			near(t, fmt.Sprintf("run %d: gradient of input %d", again, i), gradients[i], want, 100*tolerance)
		}
	}
}

// sizes are small layer sizes. Their numbers differ from each other where
// possible, to detect mix-ups.
var sizes = []Sizes{
	{Batch: 1, Steps: 1, In: 1, Units: 1}, {Batch: 2, Steps: 3, In: 5, Units: 4},
	{Batch: 3, Steps: 2, In: 1, Units: 5}, {Batch: 4, Steps: 1, In: 2, Units: 3}, {Batch: 1, Steps: 4, In: 3, Units: 2},
}

func TestLSTM(t *testing.T) {
	for _, s := range sizes {
		for _, s.Started = range []bool{false, true} {
			for _, l := range []LSTM{
				{Sizes: s, Width: s.Units}, {Sizes: s, Width: s.Units, Forget: 1.5},
				{Sizes: s, Width: 2, Projected: true, Forget: 1}, {Sizes: s, Width: s.Units, Projected: true},
			} {
				if l.Projected && l.Width > l.Units {
					continue // a projection makes outputs narrower
				}
				t.Run(fmt.Sprintf("%+v", l), func(t *testing.T) {
					testLayer(t, lstmLayer[float64](l), 1e-11)
					testLayer(t, lstmLayer[float32](l), 1e-5)
				})
			}
		}
	}
}

func TestGRU(t *testing.T) {
	for _, s := range sizes {
		for _, s.Started = range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
				testLayer(t, gruLayer[float64](GRU{s}), 1e-11)
				testLayer(t, gruLayer[float32](GRU{s}), 1e-5)
			})
		}
	}
}

// A pass must not allocate memory, because it runs in every training step.
func TestPassesAllocateNothing(t *testing.T) {
	s := Sizes{Batch: 2, Steps: 3, In: 4, Units: 4, Started: true}
	for name, l := range map[string]layer[float32]{"lstm": lstmLayer[float32](LSTM{Sizes: s, Width: 3, Projected: true}), "gru": gruLayer[float32](GRU{s})} {
		var in [][]float32
		for _, shape := range l.shapes {
			in = append(in, make([]float32, shape[0]*shape[1]))
		}
		trace, outputs, back := make([]float32, l.trace), make([]float32, l.outputs), make([]float32, l.backward)
		withTrace := append(slices.Clone(in), trace)
		withGradient := append(slices.Clone(withTrace), outputs)
		allocated := testing.AllocsPerRun(20, func() {
			l.forward(trace, in)
			l.out(outputs, withTrace)
			l.back(back, withGradient)
		})
		for i, of := range l.gradients {
			to, from := make([]float32, len(in[i])), of.take(in, trace, back)
			allocated += testing.AllocsPerRun(20, func() { of.pass(to, from) })
		}
		if allocated > 0 {
			t.Errorf("%s: its passes make %v allocations", name, allocated)
		}
	}
}
