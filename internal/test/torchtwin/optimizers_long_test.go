//go:build long

package torchtwin

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// optimiser pairs an optimizer of plx with the equivalent one of PyTorch.
type optimiser struct {
	name      string
	plx       trainer.Optimizer
	clip      float64        // largest global norm of the gradients; 0 means no clipping
	torch     string         // class of torch.optim
	arguments map[string]any // its arguments
	more      map[string]any // what else testdata/optimizers.py does
	table     bool           // the model has a table, of which each step uses some rows
	last      float64        // largest allowed difference of the final values in float64; 0 means the default
}

// arguments are keyword arguments of a Python call.
type arguments = map[string]any

const rate = 0.05

// optimisers lists all optimizers, with both types of weight decay, clipping
// and schedules. PyTorch has decoupled decay only in AdamW, and no momentum
// for sparse gradients.
var optimisers = []optimiser{
	{name: "sgd", plx: trainer.SGD(rate), torch: "SGD", arguments: arguments{"lr": rate}},
	{name: "sgd with decay", plx: trainer.SGD(rate).WithDecay(0.3), torch: "SGD", arguments: arguments{"lr": rate, "weight_decay": 0.3}},
	{name: "sgd with decoupled decay", plx: trainer.SGD(rate).WithDecoupledDecay(0.3), torch: "SGD", arguments: arguments{"lr": rate}, more: arguments{"decoupled": 0.3}},
	{name: "momentum", plx: trainer.Momentum(rate, 0.9), torch: "SGD", arguments: arguments{"lr": rate, "momentum": 0.9}},
	{name: "momentum with decay", plx: trainer.Momentum(rate, 0.9).WithDecay(0.3), torch: "SGD", arguments: arguments{"lr": rate, "momentum": 0.9, "weight_decay": 0.3}},
	{name: "nesterov", plx: trainer.Nesterov(rate, 0.9), torch: "SGD", arguments: arguments{"lr": rate, "momentum": 0.9, "nesterov": true}},
	{name: "nesterov with decay", plx: trainer.Nesterov(rate, 0.9).WithDecay(0.3), torch: "SGD", arguments: arguments{"lr": rate, "momentum": 0.9, "nesterov": true, "weight_decay": 0.3}},
	{name: "adagrad", plx: trainer.Adagrad(rate), torch: "Adagrad", arguments: arguments{"lr": rate, "initial_accumulator_value": 0.1}},
	{name: "adagrad from zero", plx: adagrad(0, 1e-3), torch: "Adagrad", arguments: arguments{"lr": rate, "eps": 1e-3}},
	{name: "adagrad with decay", plx: trainer.Adagrad(rate).WithDecay(0.3), torch: "Adagrad", arguments: arguments{"lr": rate, "initial_accumulator_value": 0.1, "weight_decay": 0.3}},
	{name: "adagrad with decoupled decay", plx: trainer.Adagrad(rate).WithDecoupledDecay(0.3), torch: "Adagrad", arguments: arguments{"lr": rate, "initial_accumulator_value": 0.1}, more: arguments{"decoupled": 0.3}},
	{name: "adam", plx: trainer.Adam(rate), torch: "Adam", arguments: arguments{"lr": rate}},
	{name: "adam with a large epsilon", plx: adam(0.8, 0.95, 1e-2), torch: "Adam", arguments: arguments{"lr": rate, "betas": []float64{0.8, 0.95}, "eps": 1e-2}},
	{name: "adam with decay", plx: trainer.Adam(rate).WithDecay(0.3), torch: "Adam", arguments: arguments{"lr": rate, "weight_decay": 0.3}},
	{name: "adamw", plx: trainer.Adam(rate).WithDecoupledDecay(0.3), torch: "AdamW", arguments: arguments{"lr": rate, "weight_decay": 0.3}},
	{name: "sgd clipped", plx: trainer.SGD(rate), clip: 0.5, torch: "SGD", arguments: arguments{"lr": rate}, more: arguments{"clip": 0.5}},
	{name: "adam with decay clipped", plx: trainer.Adam(rate).WithDecay(0.3), clip: 0.5, torch: "Adam", arguments: arguments{"lr": rate, "weight_decay": 0.3}, more: arguments{"clip": 0.5}},
	// PyTorch's clip_grad_norm_ adds 1e-6 to the norm before it divides by the
	// norm.
	{name: "sgd clipped by clip_grad_norm_", plx: trainer.SGD(rate), clip: 0.5, torch: "SGD", arguments: arguments{"lr": rate}, more: arguments{"clip_grad_norm_": 0.5}, last: 1e-6},
	{name: "linear", plx: trainer.SGD(0).WithSchedule(trainer.Linear(rate, rate/4, 60)), torch: "SGD", arguments: arguments{"lr": rate},
		more: scheduled("LinearLR", arguments{"start_factor": 1, "end_factor": 0.25, "total_iters": 60})},
	{name: "step decay", plx: trainer.Momentum(0, 0.9).WithSchedule(trainer.StepDecay(rate, 0.5, 30)), torch: "SGD", arguments: arguments{"lr": rate, "momentum": 0.9},
		more: scheduled("StepLR", arguments{"step_size": 30, "gamma": 0.5})},
	// After the schedule's last step, plx's rate stays constant, and PyTorch's
	// rises again.
	{name: "cosine", plx: trainer.Adam(0).WithSchedule(trainer.Cosine(rate, rate/10, 100)), torch: "Adam", arguments: arguments{"lr": rate},
		more: scheduled("CosineAnnealingLR", arguments{"T_max": 100, "eta_min": rate / 10})},
	{name: "warm up and linear", plx: trainer.Adam(0).WithDecoupledDecay(0.3).WithSchedule(trainer.WarmUp(10, trainer.Linear(rate, 0, 90))), torch: "AdamW", arguments: arguments{"lr": rate, "weight_decay": 0.3},
		more: arguments{"schedule": [][]any{{"LinearLR", arguments{"start_factor": 1. / 11, "total_iters": 10}}, {"LinearLR", arguments{"start_factor": 1, "end_factor": 0, "total_iters": 90}}}, "milestones": []int{10}}},
	{name: "table, sgd", plx: trainer.SGD(rate), torch: "SGD", arguments: arguments{"lr": rate}, table: true},
	{name: "table, adagrad clipped", plx: trainer.Adagrad(rate), clip: 0.5, torch: "Adagrad", arguments: arguments{"lr": rate, "initial_accumulator_value": 0.1}, more: arguments{"clip": 0.5}, table: true},
	// PyTorch's SparseAdam adds epsilon before the bias correction of the
	// second moment, plx and PyTorch's Adam after it. A tiny epsilon hides the
	// difference.
	{name: "table, adam", plx: adam(0.9, 0.999, 0), torch: "SparseAdam", arguments: arguments{"lr": rate, "eps": 1e-300}, table: true},
}

func adagrad(accumulator, epsilon float64) trainer.Optimizer {
	o := trainer.Adagrad(rate)
	o.Settings.Accumulator, o.Settings.Epsilon = accumulator, epsilon
	return o
}

func adam(beta1, beta2, epsilon float64) trainer.Optimizer {
	o := trainer.Adam(rate)
	o.Settings.Beta1, o.Settings.Beta2, o.Settings.Epsilon = beta1, beta2, epsilon
	return o
}

func scheduled(name string, a arguments) map[string]any {
	return arguments{"schedule": [][]any{{name, a}}}
}

// Optimizers and schedules must update variables like PyTorch's in 100 steps,
// from the same values and gradients. The loss of each step depends on all
// variables.
func TestOptimizers(t *testing.T) {
	if _, ok := inChild(); !ok {
		needTorch(t)
	}
	folder, script := t.TempDir(), []string{}
	for i, o := range optimisers {
		t.Run(o.name, func(t *testing.T) {
			if child, ok := inChild(); ok {
				child.train(o.twin()) // it does not return
			}
			for _, dtype := range []string{"float32", "float64"} {
				path := o.path(folder, i, dtype)
				runChild(t, path, dtype, 1)
				script = append(script, path, path+".torch", dtype)
			}
		})
	}
	if t.Failed() || len(script) == 0 {
		return
	}
	python(t, "testdata/optimizers.py", script...)
	for i, o := range optimisers {
		t.Run("compare "+o.name, func(t *testing.T) {
			for dtype, most := range map[string]limits{"float32": {first: 1e-6, losses: 1e-3, last: 1e-5}, "float64": {first: 1e-14, losses: 1e-11, last: 1e-13}} {
				if o.last > 0 {
					most.losses, most.last = 1e-3, max(o.last, most.last)
				}
				path := o.path(folder, i, dtype)
				compare(t, dtype, read(t, path), read(t, path+".torch"), most)
			}
		})
	}
}

func (o optimiser) path(folder string, i int, dtype string) string {
	return filepath.Join(folder, dtype+string(rune('a'+i)))
}

// twin returns a model whose gradients are equal to its inputs.
func (o optimiser) twin() Twin {
	settings := arguments{"optimiser": o.torch, "arguments": o.arguments, "table": o.table}
	for name, v := range o.more {
		settings[name] = v
	}
	build := dense
	if o.table {
		build = table
	}
	return Twin{Build: build, Optimizer: o.plx, Config: trainer.Config{GlobalBatch: 1, ClipNorm: o.clip}, Settings: settings, Steps: 100,
		Feeds: func(context.Context, *trainer.Job, *trainer.Session) (func(int) (trainer.Feed, error), error) {
			random := rand.New(rand.NewPCG(3, 4))
			return func(int) (trainer.Feed, error) { return o.feed(random), nil }, nil
		}}
}

// dense has two variables.
func dense(b *nn.Builder) {
	x := b.Node(gorgonia.Mul(b.Input("x", 12), b.Variable("a", nn.Uniform(-1, 1), 12, 1)))
	y := b.Node(gorgonia.Mul(b.Input("y", 5), b.Variable("b", nn.Uniform(-1, 1), 5, 1)))
	b.Loss(b.Node(gorgonia.Sum(b.Node(gorgonia.Add(x, y)))), trainer.Mean)
}

// table builds a model with an embedding table, of which each step uses some
// rows.
func table(b *nn.Builder) {
	rows := b.Lookup(b.Embedding("t", 9, 3, 1), "row", 4)
	b.Loss(b.Node(gorgonia.Sum(b.Node(gorgonia.HadamardProd(rows, b.InputOf("z", 4, 3))))), trainer.Mean)
}

// feed returns gradients of very different magnitudes. A row may be used
// twice.
func (o optimiser) feed(random *rand.Rand) trainer.Feed {
	gradients := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(random.NormFloat64() * math.Pow(10, -3*random.Float64()))
		}
		return x
	}
	if !o.table {
		return trainer.Feed{"x": nn.Batch(gradients(12), 12), "y": nn.Batch(gradients(5), 5)}
	}
	rows := make([]int64, 4)
	for i := range rows {
		rows[i] = random.Int64N(9)
	}
	return trainer.Feed{"row": nn.Batch(rows), "z": nn.Batch(gradients(12), 3)}
}
