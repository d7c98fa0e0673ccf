package main

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/executor"
	"github.com/plx-run/plx/trainer/nn"
	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// compiled is a model in float64 on one device.
type compiled struct {
	*executor.Program
	model     trainer.Model
	leaves    gorgonia.Nodes // variables, then states
	values    [][]float64    // of the leaves
	gradients [][]float64    // of the variables
	bytes     [][]byte
}

func compile(t *testing.T, n network, batch int) *compiled {
	t.Helper()
	g := gorgonia.NewGraph()
	m, err := nn.BuildOf(tensor.Float64, 1, n.build)(g, batch)
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{model: m, leaves: slices.Clone(m.Variables)}
	plan := executor.Plan{Inputs: m.Inputs, Loss: m.Loss, Differentiate: m.Variables, Outputs: gorgonia.Nodes{m.Metrics["accuracy"]}}
	for _, s := range m.States {
		c.leaves, plan.Outputs = append(c.leaves, s.Variable), append(plan.Outputs, s.Batch)
	}
	plan.Fixed = c.leaves
	for _, v := range c.leaves {
		plan.FixedValues = append(plan.FixedValues, v.Value())
		c.values = append(c.values, v.Value().Data().([]float64))
	}
	for i := range m.Variables {
		gradient := make([]float64, len(c.values[i]))
		c.gradients = append(c.gradients, gradient)
		c.bytes = append(c.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&gradient[0])), 8*len(gradient)))
	}
	if c.Program, err = executor.Compile(g, plan); err != nil {
		t.Fatal(err)
	}
	x, y := c.Input(0).Data().([]float64), c.Input(1).Data().([]float64)
	for i := range x {
		x[i] = math.Sin(float64(i*i + 1))
	}
	for i := range batch {
		y[i*n.classes+(i*7+2)%n.classes] = 1
	}
	return c
}

func (c *compiled) loss(t *testing.T, call operation.Call) float64 {
	t.Helper()
	loss, err := c.Run(call, c.bytes, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

// small is the network with few of everything, its zeros and ones changed:
// they would hide mistakes.
func small(t *testing.T, batch int) *compiled {
	n := newNetwork(0.5)
	n.side, n.filters, n.hidden = 8, [2]int{3, 4}, 6
	c := compile(t, n, batch)
	for i, values := range c.values {
		for k := range values {
			values[k] += 0.1 * math.Sin(float64(7*i+k))
		}
	}
	return c
}

// Every element of every gradient against central differences of the loss, in
// training, with dropout and the batch's statistics, and in evaluation.
func TestGradient(t *testing.T) {
	for _, batch := range []int{1, 3} {
		c := small(t, batch)
		for _, call := range []operation.Call{{Step: 2, VirtualWorker: 1, Seed: 5, Train: true}, {}} {
			c.loss(t, call)
			var gradients [][]float64
			for _, g := range c.gradients {
				gradients = append(gradients, slices.Clone(g))
			}
			for i, gradient := range gradients {
				for k, got := range gradient {
					want := c.difference(t, call, &c.values[i][k])
					if math.Abs(got-want) > 2e-6*(1+math.Abs(want)) {
						t.Errorf("batch %d, train %t, %s[%d]: gradient is %v, want %v", batch, call.Train, c.leaves[i].Name(), k, got, want)
					}
				}
			}
		}
	}
}

func (c *compiled) difference(t *testing.T, call operation.Call, x *float64) float64 {
	const h = 1e-6
	at := *x
	*x = at + h
	up := c.loss(t, call)
	*x = at - h
	down := c.loss(t, call)
	*x = at
	return (up - down) / (2 * h)
}

// In training the states' batch values are those of the convolution's result,
// in an evaluation the running ones, which the loss then depends on.
func TestStates(t *testing.T) {
	c := small(t, 2)
	if len(c.model.States) != 2 || c.model.States[0].Variable.Name() != "norm1.mean" || c.model.States[1].Variable.Name() != "norm1.variance" {
		t.Fatalf("states %v", c.model.States)
	}
	mean, variance := c.values[len(c.values)-2], c.values[len(c.values)-1]
	first := c.loss(t, operation.Call{})
	if !slices.Equal(c.Output(1).Data().([]float64), mean) || !slices.Equal(c.Output(2).Data().([]float64), variance) {
		t.Error("an evaluation's statistics are not the running ones")
	}
	trained := c.loss(t, operation.Call{Train: true})
	batch := slices.Clone(c.Output(1).Data().([]float64))
	mean[0] += 0.5
	variance[1] *= 2
	if c.loss(t, operation.Call{}) == first {
		t.Error("the running statistics do not matter in an evaluation")
	}
	if c.loss(t, operation.Call{Train: true}) != trained || !slices.Equal(c.Output(1).Data().([]float64), batch) {
		t.Error("the running statistics matter in training")
	}
}

// Dropout differs from step to step and from leaf to leaf, and only in
// training.
func TestDropout(t *testing.T) {
	c := small(t, 4)
	seen := map[float64]operation.Call{}
	for _, call := range []operation.Call{{}, {Train: true}, {Train: true, Step: 1}, {Train: true, VirtualWorker: 1}, {Train: true, Seed: 1}} {
		loss := c.loss(t, call)
		if other, ok := seen[loss]; ok {
			t.Errorf("calls %+v and %+v have the same loss", call, other)
		}
		if c.loss(t, call) != loss {
			t.Errorf("call %+v has two losses", call)
		}
		seen[loss] = call
	}
	if c.loss(t, operation.Call{}) != c.loss(t, operation.Call{Step: 9, VirtualWorker: 9, Seed: 9}) {
		t.Error("an evaluation depends on the step")
	}
}

// The example's own sizes build, and the first loss is that of guessing.
func TestFirstLoss(t *testing.T) {
	n := newNetwork(0.5)
	c := compile(t, n, 4)
	if loss := c.loss(t, operation.Call{Train: true}); math.Abs(loss-math.Log(cifarClasses)) > 1e-12 {
		t.Errorf("the first loss is %v, want log(10)", loss)
	}
}
