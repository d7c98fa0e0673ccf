//go:build long

package main

import (
	"context"
	"testing"

	"github.com/plx-run/plx/examples/internal/imagenet"
	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
)

// plx's training step equals that of PyTorch, without dropout, whose random
// numbers differ. Only the comparison in float64 is strict. In float32,
// rounding changes the sign of rectifier inputs in the first step, and
// PyTorch's own gradients differ from those in float64 by a tenth of their
// largest element.
func TestTorchTwin(t *testing.T) {
	const size, classes, batch, rate, decay = 75, 10, 32, 0.02, 1e-4
	e := imagenet.Example{Size: size, Logits: network{dropout: 0}.logits}
	torchtwin.Compare(t, torchtwin.Twin{
		Build: e.Build(classes, 0), Config: trainer.Config{GlobalBatch: batch}, Steps: 1, OnlyFirst: true, Gradients: 0.5, Exact: 1e-10,
		Optimizer: trainer.Momentum(rate, 0.9).WithDecay(decay),
		Script:    "testdata/torch_twin.py",
		Settings:  map[string]any{"size": size, "classes": classes, "rate": rate, "decay": decay},
		Feeds: func(ctx context.Context, job *trainer.Job, _ *trainer.Session) (func(int) (trainer.Feed, error), error) {
			return e.Feeds(ctx, job, batch, classes)
		},
	})
}
