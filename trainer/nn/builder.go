package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Builder makes a model and keeps the first error. Its methods return nil after
// an error. It is for one goroutine, the one that calls the build function.
type Builder struct{ m collected }

// Build makes a build function over a builder one over a graph, as Parallelize
// takes it. All first values follow from seed. Inputs and variables are float32.
func Build(seed uint64, build func(b *Builder)) trainer.Build {
	return BuildOf(tensor.Float32, seed, build)
}

// BuildOf is Build with inputs and variables of type dtype: float32 or float64.
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
		func() { // after an error methods return nil: a panic that follows from that says nothing new
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

// Batch is the number of rows that one virtual worker takes of a batch.
func (b *Builder) Batch() int { return b.m.batch }

// Node returns n, and keeps err if it is the first error. So any operation can be
// part of a model: b.Node(gorgonia.Exp(x)).
func (b *Builder) Node(n *Node, err error) *Node {
	b.m.keep(err)
	return n
}

// Input adds an input of shape (batch, features...).
func (b *Builder) Input(name string, features ...int) *Node {
	return b.m.input(b.m.dtype, name, slices.Concat([]int{b.m.batch}, features))
}

// Labels adds an input of shape (batch, classes): one-hot, or any weights of the
// classes. For class numbers use Indices.
func (b *Builder) Labels(name string, classes int) *Node { return b.Input(name, classes) }

// Indices adds an input of n whole numbers (int64): classes, or rows of a variable.
func (b *Builder) Indices(name string, n int) *Node { return b.m.input(tensor.Int64, name, []int{n}) }

// InputOf adds an input of exactly this shape, which Batch may be part of.
func (b *Builder) InputOf(name string, shape ...int) *Node { return b.m.input(b.m.dtype, name, shape) }

// Shard returns the number of the virtual worker that computes, from 0, and the
// number of all: scalars of the model's type, which the trainer sets. In an
// evaluation they are 0 and 1. Every call returns the same nodes.
func Shard(b *Builder) (id, of *Node) {
	return b.m.shardScalar(0, "shard id"), b.m.shardScalar(1, "num shards")
}

// Variable adds a trained variable. A layer of the package adds its own.
func (b *Builder) Variable(name string, first Initial, shape ...int) *Node {
	return b.m.variable(name, first, shape)
}

// Frozen adds a leaf that keeps its first value.
func (b *Builder) Frozen(name string, first Initial, shape ...int) *Node {
	n := b.m.leaf(name, first, shape)
	if n != nil {
		b.m.frozen = append(b.m.frozen, n)
	}
	return n
}

// Loss makes a scalar the loss of the model. A model has one.
func (b *Builder) Loss(loss *Node, kind trainer.LossKind) { b.m.setLoss(loss, kind) }

// Metric reports a scalar beside the loss, see [trainer.Result].
func (b *Builder) Metric(name string, n *Node) { b.m.report("metric", b.m.metrics, name, n) }

// Fetch returns a value with each result, see [trainer.Result].
func (b *Builder) Fetch(name string, n *Node) { b.m.report("fetch", b.m.fetches, name, n) }

// Carry makes first, an input, begin each step with what last was for the same row at
// the end of the step before, and with zeros in the first step. So it need not be fed,
// see [trainer.Model].
func (b *Builder) Carry(first, last *Node) { b.m.carry(first, last) }

// CrossEntropy makes the mean over the batch of [ops.CrossEntropy] the loss.
// For the sum: b.Loss(b.Node(nn.SumCrossEntropy(logits, labels)), trainer.Sum).
func (b *Builder) CrossEntropy(logits, labels *Node) {
	b.Loss(b.m.apply("loss", func() (*Node, error) { return CrossEntropy(logits, labels) }), trainer.Mean)
}

// SmoothCrossEntropy is CrossEntropy with a fraction of each label divided among all
// classes, see [ops.SmoothCrossEntropy].
func (b *Builder) SmoothCrossEntropy(logits, labels *Node, fraction float64) {
	b.Loss(b.m.apply("loss", func() (*Node, error) { return SmoothCrossEntropy(logits, labels, fraction) }), trainer.Mean)
}

// BinaryCrossEntropy makes the mean of all binary cross entropies the loss. A label of 1
// wants a large logit and a label of 0 a small one: log(1 + exp(logit)) - label*logit.
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

// MSE makes the mean of all squared differences of x and y the loss.
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
