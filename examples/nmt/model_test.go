package main

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fill returns word inputs for a gradient test. The mask hides all words of
// the second sentence except the first.
func fill(words int) modeltest.Fill {
	return func(n *gorgonia.Node, _ int, into *tensor.Dense) {
		x, length := into.Float64s(), n.Shape()[n.Dims()-1]
		for k := range x {
			switch {
			case n.Name() == "target":
				x[k] = float64((5*k + 2) % (special + words))
			case k <= length:
				x[k] = 1
			}
		}
	}
}

// TestGradient compares every element of every gradient with central
// differences, including the gradients of embedding rows.
func TestGradient(t *testing.T) {
	for _, n := range []network{
		{words: 3, length: 3, width: 2, hidden: 3},
		{words: 2, length: 1, width: 1, hidden: 1},
		{words: 4, length: 4, width: 3, hidden: 2},
	} {
		t.Run(fmt.Sprintf("%+v", n), func(t *testing.T) {
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 0, n.build), 2, fill(n.words), "source", "before")
		})
	}
}
