package rewrite

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/executor/memory"
	"github.com/plx-run/plx/trainer/nn/ops"
	"github.com/plx-run/plx/trainer/operation"
	"github.com/plx-run/plx/trainer/replica"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

type build func(x *gorgonia.Node) (*gorgonia.Node, error)

// mapped lists graphs with one of Gorgonia's operations, each with the graph
// that Model should make of it, built with plx's operation.
var mapped = map[string]struct {
	shape    []int
	gorgonia build
	plx      build
	replaced string
}{
	"dropout": {[]int{5, 7}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Dropout(x, 0.3) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Dropout(x, 0.3, "gorgonia.Dropout1") }, "Dropout"},
	"two dropouts": {[]int{5, 7}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return then(x, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Dropout(x, 0.3) }, gorgonia.Tanh,
			func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Dropout(x, 0.5) })
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return then(x, func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Dropout(x, 0.3, "gorgonia.Dropout1") }, gorgonia.Tanh,
			func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Dropout(x, 0.5, "gorgonia.Dropout2") })
	}, "Dropout (2)"},
	"dropout that is off": {[]int{5, 7}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		y, err := gorgonia.Dropout(x, 0.3)
		if err == nil {
			err = y.Op().(gorgonia.TrainModeOp).SetTraining(false)
		}
		return y, err
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return x, nil }, "Dropout"},
	"max pool": {[]int{2, 3, 5, 6}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.MaxPool2D(x, tensor.Shape{3, 3}, []int{1, 1}, []int{2, 2})
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.MaxPool2D(x, 3, 2, 1) }, "MaxPool2D"},
	"oblong max pool": {[]int{2, 3, 5, 6}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.MaxPool2D(x, tensor.Shape{2, 3}, []int{0, 0, 1, 1}, []int{1, 2})
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.MaxPool(x, ops.Walk{Kernel: 2, Stride: 1}, ops.Walk{Kernel: 3, Stride: 2, Pad: 1})
	}, "MaxPool2D"},
	"max pool of sequences": {[]int{2, 3, 1, 6}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.MaxPool2D(x, tensor.Shape{1, 2}, []int{0, 0, 0, 0}, []int{1, 2})
	},
		func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.MaxPool(x, ops.Walk{Kernel: 1, Stride: 1}, ops.Walk{Kernel: 2, Stride: 2})
		}, "MaxPool2D"},
	"average pool": {[]int{2, 3, 5, 6}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.AveragePool2D(x, tensor.Shape{3, 2}, []int{1, 0}, []int{2, 1})
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.AvgPool(x, ops.Walk{Kernel: 3, Stride: 2, Pad: 1}, ops.Walk{Kernel: 2, Stride: 1})
	}, "AveragePool2D"},
	"batch norm of images":   {[]int{3, 2, 2, 3}, batchNormed, plainNorm, "BatchNorm"},
	"batch norm of features": {[]int{6, 2}, batchNormed, plainNorm, "BatchNorm"},
	"group norm": {[]int{2, 6, 2, 2}, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		one, zero := filled(x, "one", 1), filled(x, "zero", 0)
		return gorgonia.GroupNorm(x, one, zero, 3, 6, 1e-3)
	}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.GroupNorm(x, 3, 1e-3) }, "GroupNorm"},
	"uniform": {[]int{3, 4}, times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.UniformRandomNode(x.Graph(), x.Dtype(), -1, 2, x.Shape()...), nil
	}), times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.Uniform(x.Graph(), x.Dtype(), -1, 2, "gorgonia.UniformRandomNode1", x.Shape()...)
	}), "UniformRandomNode"},
	"gaussian": {[]int{3, 4}, times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.GaussianRandomNode(x.Graph(), x.Dtype(), 1, 2, x.Shape()...), nil
	}), times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.Gaussian(x.Graph(), x.Dtype(), 1, 2, "gorgonia.GaussianRandomNode1", x.Shape()...)
	}), "GaussianRandomNode"},
	"a random number": {[]int{3, 4}, times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return gorgonia.BinomialRandomNode(x.Graph(), x.Dtype(), 40, 0.25), nil
	}), times(func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.Binomial(x.Graph(), x.Dtype(), 40, 0.25, "gorgonia.BinomialRandomNode1")
	}), "BinomialRandomNode"},
	"rows": {[]int{4, 3}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ByIndices(x, indices(x), 0) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Rows(x, indices(x)) }, "ByIndices"},
	"rows of images": {[]int{4, 3, 2}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.ByIndices(x, indices(x), 0) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) {
			flat, err := gorgonia.Reshape(x, tensor.Shape{4, 6})
			if err != nil {
				return nil, err
			}
			return ops.Rows(flat, indices(x))
		}, "ByIndices"},
	"parts that are 256 apart": {[]int{1, 256}, func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Concat(1, x, x) },
		func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Concat(1, x, x) }, "Concat"},
}

// then applies operations to x, one after the other.
func then(x *gorgonia.Node, all ...func(x *gorgonia.Node) (*gorgonia.Node, error)) (_ *gorgonia.Node, err error) {
	for _, f := range all {
		if err == nil {
			x, err = f(x)
		}
	}
	return x, err
}

func times(draw build) build {
	return func(x *gorgonia.Node) (*gorgonia.Node, error) {
		r, err := draw(x)
		if err != nil {
			return nil, err
		}
		return gorgonia.HadamardProd(r, x)
	}
}

func batchNormed(x *gorgonia.Node) (*gorgonia.Node, error) {
	y, _, _, _, err := gorgonia.BatchNorm(x, filled(x, "one", 1), filled(x, "zero", 0), 0.1, 1e-3)
	return y, err
}

// plainNorm is what batchNormed becomes.
func plainNorm(x *gorgonia.Node) (*gorgonia.Node, error) {
	vector := func(name string, first gorgonia.InitWFn) *gorgonia.Node {
		return gorgonia.NewVector(x.Graph(), x.Dtype(), gorgonia.WithName(name), gorgonia.WithShape(x.Shape()[1]), gorgonia.WithInit(first))
	}
	n, err := ops.BatchNorm(x, vector("scale", gorgonia.Ones()), vector("bias", gorgonia.Zeroes()),
		vector("mean", gorgonia.Zeroes()), vector("variance", gorgonia.Ones()), 0.9, 1e-3, "norm")
	return n.Out, err
}

// filled returns a leaf of the shape and type of x in which every element is
// v.
func filled(x *gorgonia.Node, name string, v float64) *gorgonia.Node {
	return gorgonia.NewTensor(x.Graph(), x.Dtype(), len(x.Shape()), gorgonia.WithName(name), gorgonia.WithShape(x.Shape()...), gorgonia.WithInit(gorgonia.ValuesOf(v)))
}

// indices returns indices in which one row occurs twice and another row does
// not occur.
func indices(x *gorgonia.Node) *gorgonia.Node {
	return gorgonia.NewVector(x.Graph(), tensor.Int, gorgonia.WithName("index"), gorgonia.WithShape(5),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]int{1, 3, 1, 0, 1}))))
}

// program is a compiled model with one input, an output y, and a loss that
// gives every element of y a different weight.
type program struct {
	*executor.Program
	replaced []string
	gradient []byte
}

func compiled(t *testing.T, shape []int, f build, differentiate bool) *program {
	t.Helper()
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithName("x"), gorgonia.WithShape(shape...))
	y, err := f(x)
	must(t, err)
	weights := make([]float64, memory.Elements(y.Shape()))
	for i := range weights {
		weights[i] = math.Sin(float64(3*i+1)) + 0.3
	}
	w := gorgonia.NewTensor(g, tensor.Float64, len(y.Shape()), gorgonia.WithName("weights"), gorgonia.WithShape(y.Shape()...),
		gorgonia.WithValue(tensor.New(tensor.WithShape(y.Shape()...), tensor.WithBacking(weights))))
	square, err := gorgonia.HadamardProd(y, y)
	must(t, err)
	weighed, err := gorgonia.HadamardProd(square, w)
	must(t, err)
	loss, err := gorgonia.Sum(weighed)
	must(t, err)
	p := &program{}
	m, err := Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: loss, Fetches: map[string]*gorgonia.Node{"y": y}}, true)
	must(t, err)
	p.replaced = m.Replaced
	plan := executor.Plan{Inputs: m.Inputs, Loss: m.Loss, Outputs: gorgonia.Nodes{m.Fetches["y"]}}
	if differentiate {
		plan.Differentiate, p.gradient = plan.Inputs, memory.Aligned(8*memory.Elements(shape))
	}
	p.Program, err = executor.Compile(plan.Loss.Graph(), plan)
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range p.x() {
		p.x()[i] = r.NormFloat64()
	}
	return p
}

func (p *program) x() []float64 { return p.Input(0).Data().([]float64) }

var training = operation.Call{Step: 3, VirtualWorker: 1, VirtualWorkers: 4, Seed: 7, Train: true}

func (p *program) run(t *testing.T, call operation.Call) float64 {
	t.Helper()
	var gradients [][]byte
	if p.gradient != nil {
		gradients = [][]byte{p.gradient}
	}
	loss, err := p.Run(call, gradients, nil)
	must(t, err)
	return loss
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A replaced operation gives the same values as plx's own operation, in
// training and in evaluations. Its gradient matches finite differences.
func TestReplacedOperationsMatchPlxOperations(t *testing.T) {
	for name, c := range mapped {
		t.Run(name, func(t *testing.T) {
			p, want := compiled(t, c.shape, c.gorgonia, true), compiled(t, c.shape, c.plx, true)
			if got := fmt.Sprint(p.replaced); got != "["+c.replaced+"]" || want.replaced != nil {
				t.Errorf("%s was replaced, and of plx's own %v", got, want.replaced)
			}
			for _, call := range []operation.Call{training, {Seed: 7}} {
				if got, plx := p.run(t, call), want.run(t, call); got != plx {
					t.Errorf("train %t: the loss is %v, with plx's own operation %v", call.Train, got, plx)
				}
				if got, plx := p.Output(0).Data().([]float64), want.Output(0).Data().([]float64); !slices.Equal(got, plx) {
					t.Errorf("train %t: %v, with plx's own operation %v", call.Train, got, plx)
				}
				if !slices.Equal(p.gradient, want.gradient) {
					t.Errorf("train %t: the gradient is not that of plx's own operation", call.Train)
				}
			}
			p.checkGradient(t)
		})
	}
}

func (p *program) checkGradient(t *testing.T) {
	p.run(t, training)
	got := slices.Clone(memory.View[float64](p.gradient))
	for i := range p.x() {
		at, h := p.x()[i], 1e-5
		p.x()[i] = at + h
		up := p.run(t, training)
		p.x()[i] = at - h
		want := (up - p.run(t, training)) / (2 * h)
		p.x()[i] = at
		if math.Abs(got[i]-want) > 1e-5*(1+math.Abs(want)) {
			t.Errorf("element %d: gradient %v, finite differences say %v", i, got[i], want)
		}
	}
}

// The running mean and variance of a batch norm change as in Gorgonia: with
// the same weight of the new value, and with an unbiased variance. They begin
// with the values in Gorgonia's operation.
func TestBatchNormStatesFollowGorgonia(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4, 2))
	y, _, _, op, err := gorgonia.BatchNorm(x, filled(x, "one", 1), filled(x, "zero", 0), 0.1, 1e-3)
	must(t, err)
	z, _, _, _, err := gorgonia.BatchNorm(y, filled(x, "unit", 1), filled(x, "none", 0), 0.25, 1e-2)
	must(t, err)
	must(t, op.SetStats(vector(3, 4), vector(5, 6)))
	made, err := Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: z}, true)
	must(t, err)
	var said []string
	for _, s := range made.States {
		said = append(said, fmt.Sprint(s.Variable.Name(), s.Variable.Value().Data(), s.Momentum))
	}
	want := "[gorgonia.BatchNorm1.mean[3 4] 0.9 gorgonia.BatchNorm1.variance[5 6] 0.9 gorgonia.BatchNorm2.mean[0 0] 0.75 gorgonia.BatchNorm2.variance[1 1] 0.75]"
	if got := fmt.Sprint(said); got != want {
		t.Errorf("states %s, want %s", got, want)
	}
	p, err := executor.Compile(made.Loss.Graph(), executor.Plan{Inputs: made.Inputs, Outputs: gorgonia.Nodes{made.States[0].Batch, made.States[1].Batch}})
	must(t, err)
	copy(p.Input(0).Data().([]float64), []float64{1, 10, 2, 20, 3, 40, 6, 90})
	_, err = p.Run(training, nil, nil)
	must(t, err)
	for i, want := range []string{"[3 40]", "[4.666666666666666 1266.6666666666665]"} {
		if got := fmt.Sprint(p.Output(i).Data()); got != want {
			t.Errorf("batch value %d: %s, want %s", i, got, want)
		}
	}
}

func vector(v ...float64) *tensor.Dense { return tensor.New(tensor.WithBacking(v)) }

func TestModelWithoutReplacementsIsNotCopied(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4, 2))
	y := gorgonia.Must(gorgonia.Tanh(x))
	gorgonia.Must(gorgonia.Dropout(x, 0.5)) // nobody wants it
	made, err := Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: y}, true)
	must(t, err)
	if made.Loss != y || made.Replaced != nil {
		t.Errorf("a graph without hidden state was copied: %v", made.Replaced)
	}
}

// The copied graph contains the values that a model carries to the next step,
// even if the loss does not depend on them.
func TestCarriedValuesAreCopied(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(4, 2))
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Dropout(x, 0.5))))
	carried := map[string]*gorgonia.Node{"x": gorgonia.Must(gorgonia.Tanh(x))}
	made, err := Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: loss, Carried: carried}, true)
	must(t, err)
	last := made.Carried["x"]
	if len(made.Replaced) != 1 || last == nil || last.Graph() != made.Loss.Graph() || made.Input("x") == x {
		t.Errorf("replaced %v, carried %v, input %p of %p", made.Replaced, made.Carried, made.Input("x"), x)
	}
}

func TestModelRefusesOperations(t *testing.T) {
	for want, f := range map[string]build{
		"it is set to testing": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			y, _, _, op, err := gorgonia.BatchNorm(x, filled(x, "one", 1), filled(x, "zero", 0), 0.1, 1e-3)
			must(t, op.SetTraining(false))
			return y, err
		},
		"momentum is 1, want": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			y, _, _, _, err := gorgonia.BatchNorm(x, filled(x, "one", 1), filled(x, "zero", 0), 0, 1e-3)
			return y, err
		},
		"want equal padding on opposite sides": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.MaxPool2D(x, tensor.Shape{2, 2}, []int{1, 0, 0, 0}, []int{1, 1})
		},
		"a pad of 2 needs a kernel larger than 2": func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.MaxPool2D(x, tensor.Shape{2, 2}, []int{2, 2}, []int{1, 1})
		},
		"probability to drop is 1": func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Dropout(x, 1) },
	} {
		x := gorgonia.NewTensor(gorgonia.NewGraph(), tensor.Float64, 4, gorgonia.WithName("x"), gorgonia.WithShape(2, 3, 4, 4))
		y, err := f(x)
		must(t, err)
		if _, err = Model(replica.Model{Inputs: gorgonia.Nodes{x}, Loss: y}, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
