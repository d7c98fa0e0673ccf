package main

import (
	"fmt"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// fill gives some words.
func fill(words int) modeltest.Fill {
	return func(_ *gorgonia.Node, i int, into *tensor.Dense) {
		for k, x := 0, into.Float64s(); k < len(x); k++ {
			x[k] = float64((5*k + i + 2) % words)
		}
	}
}

// TestGradient compares every element of every gradient with central
// differences, including the gradients of embedding rows.
func TestGradient(t *testing.T) {
	for _, n := range []network{
		{words: 3, length: 3, width: 2, hidden: 3},
		{words: 2, length: 1, width: 1, hidden: 1},
		{words: 4, length: 2, width: 3, hidden: 2},
	} {
		t.Run(fmt.Sprintf("%+v", n), func(t *testing.T) {
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 0, n.build), 2, fill(n.words), "sentence", "previous words", "next words")
		})
	}
}
