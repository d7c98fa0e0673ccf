package main

import (
	"fmt"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
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

// build makes the model for plx.
func (s *settings) build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	n, err := s.network(g, batch)
	if err != nil {
		return trainer.Model{}, err
	}
	return trainer.Model{Inputs: gorgonia.Nodes{n.x, n.y}, Variables: n.weights, Loss: n.loss}, nil
}

// widths returns the sizes between the layers, beginning with the input's.
func (s *settings) widths() []int {
	w := []int{s.dimIn}
	for range s.layers - 1 {
		w = append(w, s.dimHidden)
	}
	return append(w, s.classes)
}

// network adds the model to g for a batch of the given size.
func (s *settings) network(g *gorgonia.ExprGraph, batch int) (*network, error) {
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
			if out, err = s.between(out, i); err != nil {
				return nil, fmt.Errorf("layer %d: %w", i, err)
			}
		}
		if out, err = gorgonia.Mul(out, w); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	var err error
	if n.loss, err = nn.CrossEntropy(out, n.y); err != nil {
		return nil, fmt.Errorf("loss: %w", err)
	}
	return n, nil
}

func matrix(g *gorgonia.ExprGraph, name string, rows, cols int, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
	first := []gorgonia.NodeConsOpt{gorgonia.WithShape(rows, cols), gorgonia.WithName(name)}
	return gorgonia.NewMatrix(g, tensor.Float32, append(first, options...)...)
}

// between adds the operations between two layers.
func (s *settings) between(x *gorgonia.Node, layer int) (*gorgonia.Node, error) {
	x, err := gorgonia.Tanh(x)
	if err != nil || s.dropout == 0 {
		return x, err
	}
	return nn.Dropout(x, s.dropout, fmt.Sprintf("dropout%d", layer))
}
