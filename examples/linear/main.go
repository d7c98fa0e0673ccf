// Command linear fits the line y = W x + b to three points. Every worker has the same points.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

func build(b *nn.Builder) {
	x, y, first := b.Input("x", 1), b.Input("y", 1), nn.Uniform(-1, 1)
	b.MSE(b.Dense("line", x, 1, nn.Names("W", "b"), nn.First(first), nn.FirstBias(first)), y)
}

func main() {
	steps := flag.Int("steps", 200, "`steps` to take")
	trainer.Main(func(ctx context.Context, job *trainer.Job) error {
		session, err := job.Parallelize(ctx, nn.Build(1, build), trainer.SGD(0.1), trainer.Config{GlobalBatch: 3 * job.NumShards()})
		if err != nil {
			return err
		}
		points := nn.Batch(slices.Repeat([]float32{1, 2, 3}, job.NumReplicasPerWorker()), 1)
		feed := func(int) (trainer.Feed, error) { return trainer.Feed{"x": points, "y": points}, nil }
		for r, err := range session.Train(ctx, *steps, feed) {
			if err != nil {
				return err
			}
			if v, err := session.Values(ctx); err != nil {
				return err
			} else if job.IsChief() && (r.Step%20 == 0 || r.Step == *steps-1) {
				fmt.Printf("step %d | loss %.6f | W %.4f | b %.4f\n", r.Step, r.Loss, v["W"].Float32s()[0], v["b"].Float32s()[0])
			}
		}
		return nil
	})
}
