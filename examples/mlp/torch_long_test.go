//go:build long

package main

import (
	"context"
	"testing"

	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
)

// plx's training steps equal those of PyTorch, at the example's own sizes,
// except for a batch size that is divisible by 3.
func TestTorchTwin(t *testing.T) {
	s := defaults(t, "--niters", "40", "--batch-size", "66")
	torchtwin.Compare(t, torchtwin.Twin{
		Build: s.build, Optimizer: trainer.SGD(s.learningRate).WithSchedule(s.rate), Config: trainer.Config{GlobalBatch: s.batchSize},
		Script: "testdata/torch_twin.py", Divided: true, Settings: map[string]any{"widths": s.widths(), "rate": s.learningRate, "steps": s.iterations},
		Feeds: func(_ context.Context, job *trainer.Job, _ *trainer.Session) (func(int) (trainer.Feed, error), error) {
			s.seed = job.Seed()
			train, _, _, err := s.load(job)
			o := &order{samples: s.trainSize, batch: s.batchSize, seed: s.seed}
			return func(step int) (trainer.Feed, error) {
				x, y := train.batch(o.step(step))
				return trainer.Feed{"x": x, "y": y}, nil
			}, err
		},
	})
}
