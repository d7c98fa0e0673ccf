//go:build long

package main

import (
	"context"
	"testing"

	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

// plx's training steps equal those of PyTorch.
func TestTorchTwin(t *testing.T) {
	torchtwin.Compare(t, torchtwin.Twin{
		Build: build, Optimizer: trainer.SGD(0.1), Config: trainer.Config{GlobalBatch: 3}, Script: "testdata/torch_twin.py", Divided: true,
		Feeds: func(context.Context, *trainer.Job, *trainer.Session) (func(int) (trainer.Feed, error), error) {
			return func(int) (trainer.Feed, error) {
				return trainer.Feed{"x": nn.Batch([]float32{1, 2, 3}, 1), "y": nn.Batch([]float32{1, 2, 3}, 1)}, nil
			}, nil
		},
	})
}
