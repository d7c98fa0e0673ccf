// Command linear fits y = W x + b to three points by gradient descent. It is
// the smallest program that plx can run on a cluster, and it trains alone too:
//
//	go run ./examples/linear
//	plx launch --hosts resources.txt ./examples/linear
//
// Every worker feeds the same three points. So the training is the same for any
// number of workers, and ends at W = 1 and b = 0. The task is that of
// Parallax's quick start.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var steps = flag.Int("steps", 200, "`steps` to take")

func main() { trainer.Main(train) }

// train is one worker's part. The chief prints every twentieth step.
func train(ctx context.Context, job *trainer.Job) error {
	points := slices.Repeat([]float32{1, 2, 3}, job.NumReplicasPerWorker())
	feed := trainer.Feed{"x": column(points...), "y": column(points...)}
	batch := trainer.GlobalBatch(3 * job.NumShards())
	replica, err := job.Parallelize(ctx, build, trainer.SGD(0.1), batch)
	if err != nil {
		return err
	}
	for step := replica.Steps(); step < *steps; step++ {
		result, err := replica.Step(ctx, feed)
		if err != nil {
			return err
		}
		if !job.IsChief() || (step%20 != 0 && step != *steps-1) {
			continue
		}
		if err := report(ctx, step, result.Loss, replica); err != nil {
			return err
		}
	}
	return nil
}

// report prints the loss before a step and the variables after it.
func report(ctx context.Context, step int, loss float64, replica *trainer.Replica) error {
	values, err := replica.Values(ctx)
	if err != nil {
		return err
	}
	w, b := values["W"].Data().([]float32)[0], values["b"].Data().([]float32)[0]
	_, err = fmt.Printf("step %d | loss %.6f | W %.4f | b %.4f\n", step, loss, w, b)
	return err
}

// seed determines the first values of W and b.
const seed = 1

// build makes the model for plx: the line y = x W + b and its mean squared error.
// x and y have shape (batch, 1), W and b (1, 1). W and b start from uniform(-1, 1).
// Must panics only if shapes do not fit, and these do for every batch.
func build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	x, y := matrix(g, "x", batch), matrix(g, "y", batch)
	w := matrix(g, "W", 1, gorgonia.WithInit(trainer.Uniform(seed, "W", -1, 1)))
	b := matrix(g, "b", 1, gorgonia.WithInit(trainer.Uniform(seed, "b", -1, 1)))
	line := gorgonia.Must(gorgonia.BroadcastAdd(gorgonia.Must(gorgonia.Mul(x, w)), b, nil, []byte{0}))
	loss, err := gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(line, y)))))
	return trainer.Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: loss}, err
}

func matrix(g *gorgonia.ExprGraph, name string, rows int, options ...gorgonia.NodeConsOpt) *gorgonia.Node {
	first := []gorgonia.NodeConsOpt{gorgonia.WithShape(rows, 1), gorgonia.WithName(name)}
	return gorgonia.NewMatrix(g, tensor.Float32, append(first, options...)...)
}

// column returns a tensor of shape (len(values), 1).
func column(values ...float32) tensor.Tensor {
	return tensor.New(tensor.WithShape(len(values), 1), tensor.WithBacking(values))
}
