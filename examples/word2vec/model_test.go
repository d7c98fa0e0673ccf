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
// differences, for the rows of both embeddings. Package nn compares the loss
// with a plain computation.
func TestGradient(t *testing.T) {
	for _, size := range []struct{ words, width, each, batch int }{{9, 3, 4, 2}, {4, 1, 2, 1}, {7, 5, 3, 3}} {
		t.Run(fmt.Sprintf("%+v", size), func(t *testing.T) {
			build := nn.BuildOf(tensor.Float64, 1, func(b *nn.Builder) { model(b, size.words, size.width, size.each) })
			modeltest.Gradients(t, build, size.batch, func(n *gorgonia.Node, _ int, into *tensor.Dense) {
				for i, x := 0, into.Float64s(); i < len(x); i++ {
					x[i] = math.Mod(float64(i), 2)
				}
			}, "word", "other")
		})
	}
}
