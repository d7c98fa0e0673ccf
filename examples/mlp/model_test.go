package main

import (
	"flag"
	"fmt"
	"math"
	"testing"

	"github.com/plx-run/plx/internal/test/modeltest"
	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// defaults returns the settings with the flags' defaults, except for the given
// arguments.
func defaults(t testing.TB, arguments ...string) *settings {
	t.Helper()
	var s settings
	f := flag.NewFlagSet("mlp", flag.ContinueOnError)
	s.define(f)
	if err := f.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestGradient compares every element of every gradient with central
// differences. TestTorchTwin compares the loss.
func TestGradient(t *testing.T) {
	for _, layers := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("layers=%d", layers), func(t *testing.T) {
			s := defaults(t, "--dim-in=12", "--n-classes=5", "--dim-hidden=7", fmt.Sprintf("--n-layers=%d", layers))
			modeltest.Gradients(t, nn.BuildOf(tensor.Float64, s.seed, s.build), 6, func(n *gorgonia.Node, _ int, into *tensor.Dense) {
				x := into.Float64s()
				if n.Name() == "x" {
					for i := range x {
						x[i] = math.Sin(float64(i*i + 1))
					}
					return
				}
				for i := range n.Shape()[0] {
					x[i*s.classes+(i*7+2)%s.classes] = 1
				}
			})
		})
	}
}
