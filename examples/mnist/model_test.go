package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestGradient compares every element of every gradient with central
// differences. TestTorchTwin compares the loss.
func TestGradient(t *testing.T) {
	for _, size := range []struct{ in, hidden, batch int }{{6, 5, 4}, {3, 1, 1}, {1, 4, 3}} {
		t.Run(fmt.Sprintf("%+v", size), func(t *testing.T) {
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 1, model(size.in, size.hidden)), size.batch, fill)
		})
	}
}

// fill fills an input of the model with pixels or with one-hot labels.
func fill(n *gorgonia.Node, _ int, into *tensor.Dense) {
	x := into.Float64s()
	if n.Name() == "x" {
		for i := range x {
			x[i] = math.Sin(float64(i*i + 1))
		}
		return
	}
	for i := range n.Shape()[0] {
		x[i*classes+(i*7+2)%classes] = 1
	}
}
