package main

import (
	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// seed determines the first values of W and b.
const seed = 1

// regression is the line y = W x + b and its mean squared error.
type regression struct {
	x, y *gorgonia.Node // (batch, 1)
	w, b *gorgonia.Node // (1, 1)
	loss *gorgonia.Node
}

// build makes the model for plx.
func build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	r, err := newRegression(g, batch)
	if err != nil {
		return trainer.Model{}, err
	}
	return trainer.Model{Inputs: gorgonia.Nodes{r.x, r.y}, Variables: gorgonia.Nodes{r.w, r.b}, Loss: r.loss}, nil
}

// newRegression adds the model to g for a batch of the given size. W and b
// start from uniform(-1, 1).
func newRegression(g *gorgonia.ExprGraph, batch int) (*regression, error) {
	r := &regression{
		x: matrix(g, "x", batch),
		y: matrix(g, "y", batch),
		w: matrix(g, "W", 1, gorgonia.WithInit(trainer.Uniform(seed, "W", -1, 1))),
		b: matrix(g, "b", 1, gorgonia.WithInit(trainer.Uniform(seed, "b", -1, 1))),
	}
	prediction, err := gorgonia.Mul(r.x, r.w)
	if err != nil {
		return nil, err
	}
	if prediction, err = gorgonia.BroadcastAdd(prediction, r.b, nil, []byte{0}); err != nil {
		return nil, err
	}
	off, err := gorgonia.Sub(prediction, r.y)
	if err != nil {
		return nil, err
	}
	square, err := gorgonia.Square(off)
	if err != nil {
		return nil, err
	}
	if r.loss, err = gorgonia.Mean(square); err != nil {
		return nil, err
	}
	return r, nil
}

func matrix(g *gorgonia.ExprGraph, name string, rows int, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
	first := []gorgonia.NodeConsOpt{gorgonia.WithShape(rows, 1), gorgonia.WithName(name)}
	return gorgonia.NewMatrix(g, tensor.Float32, append(first, options...)...)
}

// column returns a tensor of shape (len(values), 1).
func column(values ...float32) tensor.Tensor {
	return tensor.New(tensor.WithShape(len(values), 1), tensor.WithBacking(values))
}
