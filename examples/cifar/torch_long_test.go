//go:build long

package main

import (
	"context"
	"flag"
	"testing"

	"github.com/plx-run/plx/internal/test/torchtwin"
	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/data"
	"github.com/plx-run/plx/trainer/nn"
)

// plx's training steps equal those of PyTorch, at the example's own sizes and
// without dropout. Adam divides a gradient by its own size. Rounding of a
// gradient near zero therefore changes the weight by a part of the rate,
// 0.005. In float32, PyTorch's own final values differ by 2e-3 from those in
// float64.
func TestTorchTwin(t *testing.T) {
	var s settings
	s.define(flag.NewFlagSet("cifar", flag.ContinueOnError))
	const warm, total = 10, 40
	net := newNetwork(0)
	torchtwin.Compare(t, torchtwin.Twin{
		Build: net.build, Config: trainer.Config{GlobalBatch: s.batch, ClipNorm: s.clip},
		Optimizer: trainer.Adam(s.rate).WithSchedule(trainer.WarmUp(warm, trainer.Cosine(s.rate, 0, total-warm))),
		Script:    "testdata/torch_twin.py",
		Last:      5e-2,
		Settings: map[string]any{"filters": net.filters, "hidden": net.hidden, "rate": s.rate, "clip": s.clip, "batch": s.batch,
			"warm": warm, "steps": total},
		Feeds: func(ctx context.Context, job *trainer.Job, _ *trainer.Session) (func(int) (trainer.Feed, error), error) {
			images, _, err := s.read(job.Seed(), nil)
			if err != nil {
				return nil, err
			}
			shard, err := trainer.Epochs(ctx, job, images, s.batch)
			if err != nil {
				return nil, err
			}
			return shard.Feed(func(images []data.Image) (trainer.Feed, error) {
				x, y, err := scale.Batch(images, channels*net.side*net.side, net.classes)
				return trainer.Feed{"x": nn.Batch(x, channels, net.side, net.side), "y": nn.Batch(y, net.classes)}, err
			}), nil
		},
	})
}
