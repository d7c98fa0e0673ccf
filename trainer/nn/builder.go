package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Builder builds a model layer by layer and keeps the first error. After an
// error its methods return nil. A Builder may only be used in the goroutine
// that calls the build function.
type Builder struct{ m collected }

// Build turns a function that uses a Builder into the trainer.Build function
// that Parallelize takes. All initial values are derived from seed. Inputs and
// variables are float32.
func Build(seed uint64, build func(b *Builder)) trainer.Build {
	return BuildOf(tensor.Float32, seed, build)
}

// BuildOf is like Build, with inputs and variables of type dtype, which must
// be float32 or float64.
func BuildOf(dtype tensor.Dtype, seed uint64, build func(b *Builder)) trainer.Build {
	return func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		if build == nil {
			return trainer.Model{}, errors.New("there is no model to build: the function is nil")
		}
		if dtype != tensor.Float32 && dtype != tensor.Float64 {
			return trainer.Model{}, fmt.Errorf("the model's type is %v, want float32 or float64", dtype)
		}
		b := &Builder{collected{graph: g, batch: batch, seed: seed, dtype: dtype, names: map[string]bool{},
			metrics: map[string]*Node{}, fetches: map[string]*Node{}, carried: map[string]*Node{}}}
		func() { // suppresses panics after the first error, when build works with nil nodes
			defer func() {
				if b.m.err != nil {
					_ = recover()
				}
			}()
			build(b)
		}()
		return b.m.done()
	}
}

// Batch is the number of rows of the batch that each virtual worker processes.
func (b *Builder) Batch() int { return b.m.batch }

// Node returns n, and records err if it is the builder's first error. It adds
// any Gorgonia operation to the model: b.Node(gorgonia.Exp(x)).
func (b *Builder) Node(n *Node, err error) *Node {
	b.m.keep(err)
	return n
}

// Input adds an input of shape (batch, features...).
func (b *Builder) Input(name string, features ...int) *Node {
	return b.m.input(b.m.dtype, name, slices.Concat([]int{b.m.batch}, features))
}

// Labels adds an input of shape (batch, classes): one-hot labels, or a weight
// for each class. For class numbers, use Indices.
func (b *Builder) Labels(name string, classes int) *Node { return b.Input(name, classes) }

// Indices adds an input of n integers (int64), for class numbers or for row
// numbers of a table.
func (b *Builder) Indices(name string, n int) *Node { return b.m.input(tensor.Int64, name, []int{n}) }

// InputOf adds an input of the given shape. Unlike Input, it does not prepend
// the batch dimension.
func (b *Builder) InputOf(name string, shape ...int) *Node { return b.m.input(b.m.dtype, name, shape) }

// Shard returns two scalars of the model's type, whose values the trainer
// sets. id is the number of the virtual worker that runs the graph, from 0; of
// is the number of virtual workers. In an evaluation they are 0 and 1. Every
// call returns the same nodes.
func Shard(b *Builder) (id, of *Node) {
	return b.m.shardScalar(0, "shard id"), b.m.shardScalar(1, "num shards")
}

// Variable adds a trainable variable with initial values from first. Layers of
// this package add their own variables.
func (b *Builder) Variable(name string, first Initial, shape ...int) *Node {
	return b.m.variable(name, first, shape)
}

// Frozen adds a variable that training does not change: it keeps its initial
// values.
func (b *Builder) Frozen(name string, first Initial, shape ...int) *Node {
	n := b.m.leaf(name, first, shape)
	if n != nil {
		b.m.frozen = append(b.m.frozen, n)
	}
	return n
}

// Loss sets the model's loss, a scalar. A model has exactly one loss.
func (b *Builder) Loss(loss *Node, kind trainer.LossKind) { b.m.setLoss(loss, kind) }

// Metric adds a scalar that each training step reports in addition to the
// loss, see [trainer.Result].
func (b *Builder) Metric(name string, n *Node) { b.m.report("metric", b.m.metrics, name, n) }

// Fetch adds a value that each [trainer.Result] returns under this name.
func (b *Builder) Fetch(name string, n *Node) { b.m.report("fetch", b.m.fetches, name, n) }

// Carry keeps recurrent state across steps. The input first begins each step
// with the value that the node last had for the same row in the previous step.
// In the first step the input is zero. The program need not feed it, see
// [trainer.Model].
func (b *Builder) Carry(first, last *Node) { b.m.carry(first, last) }

// CrossEntropy sets the model's loss to the mean of [ops.CrossEntropy] over
// the batch. To use the sum instead: b.Loss(b.Node(nn.SumCrossEntropy(logits,
// labels)), trainer.Sum).
func (b *Builder) CrossEntropy(logits, labels *Node) {
	b.Loss(b.m.apply("loss", func() (*Node, error) { return CrossEntropy(logits, labels) }), trainer.Mean)
}

// SmoothCrossEntropy is like CrossEntropy with label smoothing: a fraction of
// each label is divided equally among all classes, see
// [ops.SmoothCrossEntropy].
func (b *Builder) SmoothCrossEntropy(logits, labels *Node, fraction float64) {
	b.Loss(b.m.apply("loss", func() (*Node, error) { return SmoothCrossEntropy(logits, labels, fraction) }), trainer.Mean)
}

// BinaryCrossEntropy sets the model's loss to the mean of the binary cross
// entropies log(1 + exp(logit)) - label*logit. Labels are 0 or 1.
func (b *Builder) BinaryCrossEntropy(logits, labels *Node) {
	b.Loss(b.m.apply("loss", func() (*Node, error) {
		if err := same("binary cross entropy", logits, labels); err != nil {
			return nil, err
		}
		all, err := gorgonia.Softplus(logits)
		if err != nil {
			return nil, err
		}
		wanted, err := gorgonia.HadamardProd(labels, logits)
		if err != nil {
			return nil, err
		}
		if all, err = gorgonia.Sub(all, wanted); err != nil {
			return nil, err
		}
		return gorgonia.Mean(all)
	}), trainer.Mean)
}

// MSE sets the model's loss to the mean squared difference of x and y.
func (b *Builder) MSE(x, y *Node) {
	b.Loss(b.m.apply("loss", func() (*Node, error) {
		if err := same("mean squared error", x, y); err != nil {
			return nil, err
		}
		d, err := gorgonia.Sub(x, y)
		if err != nil {
			return nil, err
		}
		if d, err = gorgonia.Square(d); err != nil {
			return nil, err
		}
		return gorgonia.Mean(d)
	}), trainer.Mean)
}
