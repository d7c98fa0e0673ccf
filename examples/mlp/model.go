package main

import (
	"fmt"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// network is a stack of linear layers without biases, tanh between them, and
// the cross-entropy of the last layer's softmax, averaged over the batch.
type network struct {
	x, y    *gorgonia.Node // features (batch, in); labels one-hot (batch, classes)
	weights gorgonia.Nodes
	loss    *gorgonia.Node
}

// build is the model as plx wants it.
func (s settings) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	n, err := s.network(g, batch)
	if err != nil {
		return trainer.Model{}, err
	}
	return trainer.Model{Inputs: gorgonia.Nodes{n.x, n.y}, Variables: n.weights, Loss: n.loss}, nil
}

// widths are the sizes between the layers, the input's first.
func (s settings) widths() []int {
	w := []int{s.dimIn}
	for range s.layers - 1 {
		w = append(w, s.dimHidden)
	}
	return append(w, s.classes)
}

// network adds the model to g for a batch of the given size.
func (s settings) network(g *gorgonia.ExprGraph, batch int) (*network, error) {
	n := &network{
		x: matrix(g, "x", batch, s.dimIn),
		y: matrix(g, "y", batch, s.classes),
	}
	out := n.x
	widths := s.widths()
	for i := range s.layers {
		in, to := widths[i], widths[i+1]
		name := fmt.Sprintf("w%d", i)
		w := matrix(g, name, in, to, gorgonia.WithInit(trainer.KaimingUniform(s.seed, name)))
		n.weights = append(n.weights, w)
		var err error
		if i > 0 {
			if out, err = gorgonia.Tanh(out); err != nil {
				return nil, fmt.Errorf("layer %d: %w", i, err)
			}
		}
		if out, err = gorgonia.Mul(out, w); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	var err error
	if n.loss, err = crossEntropy(out, n.y); err != nil {
		return nil, fmt.Errorf("loss: %w", err)
	}
	return n, nil
}

func matrix(g *gorgonia.ExprGraph, name string, rows, cols int, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
	first := []gorgonia.NodeConsOpt{gorgonia.WithShape(rows, cols), gorgonia.WithName(name)}
	return gorgonia.NewMatrix(g, tensor.Float32, append(first, options...)...)
}

// crossEntropy is the mean over the rows of log(sum(exp(logits))) - logits[label].
//
// Each row's largest logit is taken off first, so that exp cannot overflow.
// Gorgonia's own SoftMax and LogSoftMax do not do for this: from the second
// row on they look for the largest from the first row's first element, which
// leaves other rows open to overflow (gorgonia.org/tensor v0.9.24).
func crossEntropy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	largest, err := gorgonia.Max(logits, 1)
	if err != nil {
		return nil, err
	}
	shifted, err := gorgonia.BroadcastSub(logits, largest, nil, []byte{1})
	if err != nil {
		return nil, err
	}
	exp, err := gorgonia.Exp(shifted)
	if err != nil {
		return nil, err
	}
	sum, err := gorgonia.Sum(exp, 1)
	if err != nil {
		return nil, err
	}
	logSum, err := gorgonia.Log(sum)
	if err != nil {
		return nil, err
	}
	chosen, err := gorgonia.HadamardProd(shifted, labels)
	if err != nil {
		return nil, err
	}
	if chosen, err = gorgonia.Sum(chosen, 1); err != nil {
		return nil, err
	}
	each, err := gorgonia.Sub(logSum, chosen)
	if err != nil {
		return nil, err
	}
	return gorgonia.Mean(each)
}
