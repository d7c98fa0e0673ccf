//go:build long

package main

import (
	"context"
	"testing"

	"github.com/plx-run/plx/examples/internal/imagenet"
	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
)

// plx's training step equals that of PyTorch, with smoothed labels; in
// float64, five steps do. In float32, PyTorch's own losses after five steps
// differ by 7e-2 from those in float64, because rounding changes the sign of
// rectifier inputs.
func TestTorchTwin(t *testing.T) {
	const depth, classes, batch, smoothing, rate, decay = 18, 10, 16, 0.1, 0.02, 1e-4
	e := imagenet.Example{Size: 64, Logits: (&network{depth}).logits}
	torchtwin.Compare(t, torchtwin.Twin{
		Build: e.Build(classes, smoothing), Config: trainer.Config{GlobalBatch: batch}, Steps: 5, First: 1e-4, OnlyFirst: true,
		Optimizer: trainer.Momentum(rate, 0.9).WithDecay(decay),
		Script:    "testdata/torch_twin.py",
		Settings: map[string]any{"blocks": depths[depth].blocks, "bottleneck": depths[depth].bottleneck, "classes": classes,
			"smoothing": smoothing, "rate": rate, "decay": decay},
		Feeds: func(ctx context.Context, job *trainer.Job, _ *trainer.Session) (func(int) (trainer.Feed, error), error) {
			return e.Feeds(ctx, job, batch, classes)
		},
	})
}
