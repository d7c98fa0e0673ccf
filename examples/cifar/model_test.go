package main

import (
	"math"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestGradient compares every element of every gradient with central
// differences, with dropout and batch statistics. TestTorchTwin compares the
// loss.
func TestGradient(t *testing.T) {
	n := newNetwork(0.5)
	n.side, n.filters, n.hidden = 8, [2]int{3, 4}, 6
	for _, batch := range []int{1, 3} {
		modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 1, n.build), batch, func(in *gorgonia.Node, _ int, into *tensor.Dense) {
			x := into.Float64s()
			if in.Name() == "x" {
				for i := range x {
					x[i] = math.Sin(float64(i*i + 1))
				}
				return
			}
			for i := range batch {
				x[i*n.classes+(i*7+2)%n.classes] = 1
			}
		})
	}
}

// The running statistics of the batch norm are states of the model, which
// checkpoints store.
func TestStates(t *testing.T) {
	m, err := nn.BuildOf(tensor.Float64, 1, newNetwork(0.5).build)(gorgonia.NewGraph(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.States) != 2 || m.States[0].Variable.Name() != "norm1.mean" || m.States[1].Variable.Name() != "norm1.variance" {
		t.Errorf("states %v", m.States)
	}
}
