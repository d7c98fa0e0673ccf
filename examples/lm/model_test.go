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

// fill returns inputs for a gradient test. Inputs that must be word numbers
// are whole numbers below words.
func fill(words int) modeltest.Fill {
	return func(n *gorgonia.Node, i int, into *tensor.Dense) {
		if n.Dtype() == tensor.Int64 {
			for k, x := 0, into.Int64s(); k < len(x); k++ {
				x[k] = int64((5*k + 2) % words)
			}
			return
		}
		for k, x := 0, into.Float64s(); k < len(x); k++ {
			x[k] = -0.2 - 0.5*math.Abs(math.Cos(float64(3*i+k)))
		}
	}
}

// TestGradient compares every element of every gradient with central
// differences, for embeddings and for ordinary variables.
func TestGradient(t *testing.T) {
	for _, n := range []settings{
		{vocabulary: 9, width: 2, hidden: 2, length: 3, drawn: 4},
		{vocabulary: 7, width: 2, hidden: 3, length: 2, drawn: 3},
		{vocabulary: 6, width: 3, hidden: 2, length: 2, drawn: 2, dense: true},
	} {
		t.Run(fmt.Sprintf("%+v", n), func(t *testing.T) {
			lookups := []string{"word", "target", "sample"}
			if n.dense {
				lookups = nil
			}
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, 0, n.build), 2, fill(n.vocabulary), lookups...)
		})
	}
}
