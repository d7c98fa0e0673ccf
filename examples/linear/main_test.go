package main

import (
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestGradient compares every gradient with central differences. TestTorchTwin
// compares the loss, and TestLinearFindsTheLine trains.
func TestGradient(t *testing.T) {
	for _, batch := range []int{1, 3, 6} {
		modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 1, build), batch, func(_ *gorgonia.Node, _ int, into *tensor.Dense) {
			for i, x := 0, into.Float64s(); i < len(x); i++ {
				x[i] = float64(1 + i%3)
			}
		})
	}
}
