//go:build long

package main

import (
	"context"
	"testing"

	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

// plx's training steps equal those of PyTorch, at the example's own sizes.
func TestTorchTwin(t *testing.T) {
	torchtwin.Compare(t, torchtwin.Twin{
		Build: model(pixels, hidden), Optimizer: trainer.Adagrad(*rate), Config: trainer.Config{GlobalBatch: *batch}, Script: "testdata/torch_twin.py", Divided: true,
		Feeds: func(ctx context.Context, job *trainer.Job, _ *trainer.Session) (func(int) (trainer.Feed, error), error) {
			images, err := read(job.Seed())
			if err != nil {
				return nil, err
			}
			shard, err := trainer.Epochs(ctx, job, images, *batch)
			if err != nil {
				return nil, err
			}
			return shard.Feed(func(images []data.Image) (trainer.Feed, error) {
				x, y, err := data.Scale{}.Batch(images, pixels, classes)
				return trainer.Feed{"x": nn.Batch(x, pixels), "y": nn.Batch(y, classes)}, err
			}), nil
		},
	})
}
