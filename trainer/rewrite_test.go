package trainer

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// foreignCNN builds a model with Gorgonia's own stateful operations, as
// programs for a single device do.
func foreignCNN(seed uint64) Build {
	return func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: seed}
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("x"), gorgonia.WithShape(batch, 2, 6, 6))
		l.model.Inputs = gorgonia.Nodes{x}
		scale, bias := l.variable("scale", 1, 4, 1, 1), l.variable("bias", 1, 4, 1, 1)
		filters := l.variable("filters", 4, 2, 3, 3)
		h := l.node(func() (*gorgonia.Node, error) {
			return gorgonia.Conv2d(x, filters, tensor.Shape{3, 3}, []int{1, 1}, []int{1, 1}, []int{1, 1})
		})
		h = l.node(func() (*gorgonia.Node, error) {
			y, _, _, _, err := gorgonia.BatchNorm(h, scale, bias, 0.25, 1e-5)
			return y, err
		})
		h = l.node(func() (*gorgonia.Node, error) { return gorgonia.Rectify(h) })
		h = l.node(func() (*gorgonia.Node, error) {
			return gorgonia.MaxPool2D(h, tensor.Shape{2, 2}, []int{0, 0}, []int{2, 2})
		})
		h = l.node(func() (*gorgonia.Node, error) {
			return gorgonia.AveragePool2D(h, tensor.Shape{1, 3}, []int{0, 1}, []int{1, 1})
		})
		h = l.node(func() (*gorgonia.Node, error) {
			one := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("one"), gorgonia.WithShape(1, 4, 1, 1), gorgonia.WithInit(gorgonia.Ones()))
			zero := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("zero"), gorgonia.WithShape(1, 4, 1, 1), gorgonia.WithInit(Zeros()))
			return gorgonia.GroupNorm(h, one, zero, 2, 4, 1e-5)
		})
		h = l.node(func() (*gorgonia.Node, error) { return gorgonia.Reshape(h, tensor.Shape{batch, 4 * 3 * 3}) })
		h = l.node(func() (*gorgonia.Node, error) { return gorgonia.Dropout(h, 0.25) })
		h = l.node(func() (*gorgonia.Node, error) {
			return gorgonia.Add(h, gorgonia.UniformRandomNode(g, tensor.Float32, -0.1, 0.1, batch, 4*3*3))
		})
		return l.classify(l.linear("last", h, 4*3*3, 3), batch)
	}
}

// A graph of Gorgonia's own operations must train with the same bits on any
// number of workers. Evaluations must use the running averages.
func TestGorgoniaOperationsTrain(t *testing.T) {
	x := trial{build: foreignCNN, feed: classified(2, 6, 6), opt: Adam(0.02), options: []Option{GlobalBatch(12)}, steps: 5}
	want := x.alone(t, VirtualWorkers(2))
	for _, at := range layouts[1:] {
		tj := newTestJob(t, 2, at.servers, VirtualWorkers(2), Arch(at.arch), scattered)
		done, err := x.together(tj)
		if err == nil {
			err = done.same(want)
		}
		if err != nil {
			t.Errorf("%s, %d servers: %v", at.arch, at.servers, err)
		}
		said := "gorgonia's operations that plx replaces with its own: AveragePool2D, BatchNorm, Dropout, GroupNorm, MaxPool2D, UniformRandomNode;"
		for i, log := range tj.logs {
			if got := strings.Count(log.String(), said); got != map[bool]int{true: 1}[i == 0] {
				t.Errorf("worker:%d says %d times what is replaced:\n%s", i, got, log)
			}
		}
	}
	if want.losses[4] >= want.losses[0] {
		t.Errorf("losses %v", want.losses)
	}
}

// The running averages of Gorgonia's batch norm must become variables that
// change in training. Evaluations must use them for any number of rows.
func TestGorgoniaBatchNormIsEvaluated(t *testing.T) {
	x := trial{build: foreignCNN, feed: classified(2, 6, 6), opt: SGD(0.1), options: []Option{GlobalBatch(12)}}
	j := soloJob(new(bytes.Buffer))
	r, err := j.Parallelize(t.Context(), x.build(1), x.opt, x.options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Step(t.Context(), x.feed(0, 0, 12)); err != nil {
		t.Fatal(err)
	}
	values, err := r.Values(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mean, variance := values["gorgonia.BatchNorm1.mean"], values["gorgonia.BatchNorm1.variance"]
	if mean == nil || variance == nil || mean.Data().([]float32)[0] == 0 || variance.Data().([]float32)[0] == 1 {
		t.Fatalf("running values %v and %v", mean, variance)
	}
	for _, rows := range []int{1, 5} {
		a, err := r.Evaluate(t.Context(), x.feed(1, 0, rows))
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Evaluate(t.Context(), x.feed(1, 0, rows))
		if err != nil || a.Loss != b.Loss || math.IsNaN(a.Loss) {
			t.Errorf("%d rows: losses %v and %v, %v", rows, a.Loss, b.Loss, err)
		}
	}
}

// Parallelize must reject Gorgonia's operations that it cannot replace, and
// name them.
func TestUnsupportedGorgoniaOperationsAreRefused(t *testing.T) {
	build := func(g *gorgonia.ExprGraph, batch int) (Model, error) {
		l := &layers{g: g, seed: 1}
		logits := l.variable("logits", 4, batch, 3)
		index := func(name string, n int) *gorgonia.Node {
			return gorgonia.NewVector(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(n), gorgonia.WithInit(gorgonia.Ones()))
		}
		l.model.Loss = l.node(func() (*gorgonia.Node, error) {
			return gorgonia.CTCLoss(logits, index("targets", batch), index("lengths", batch), index("sizes", batch), gorgonia.ReductionSum)
		})
		return l.model, l.err
	}
	_, err := soloJob(new(bytes.Buffer)).Parallelize(t.Context(), build, SGD(1), GlobalBatch(2))
	if err == nil || !strings.Contains(err.Error(), "ctcLoss") || !strings.Contains(err.Error(), "is refused: it keeps values between forward and backward") {
		t.Error(fmt.Errorf("CTC loss: %w", err))
	}
}
