// Command linear is the linear regression of the Parallax page, in a bare graph.
package main

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func main() { trainer.Main(train) }

func train(ctx context.Context, job *trainer.Job) error {
	build := func(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
		x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("X"), gorgonia.WithShape(batch))
		y := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("Y"), gorgonia.WithShape(batch))
		w := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("W"), gorgonia.WithShape(1), job.Uniform(-1, 1))
		b := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("b"), gorgonia.WithShape(1), job.Uniform(-1, 1))
		hypothesis := gorgonia.Must(gorgonia.BroadcastHadamardProd(x, w, nil, []byte{0}))
		hypothesis = gorgonia.Must(gorgonia.BroadcastAdd(hypothesis, b, nil, []byte{0}))
		cost, err := gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(hypothesis, y)))))
		return trainer.Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w, b}, Loss: cost}, err
	}
	session, err := job.Parallelize(ctx, build, trainer.SGD(0.1), trainer.Config{GlobalBatch: 6})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	points := make([]float32, to-from)
	for i := range points {
		points[i] = float32(1 + (from+i)%3)
	}
	x := tensor.New(tensor.WithShape(len(points)), tensor.WithBacking(points))
	var last float64
	for result, err := range session.Train(ctx, 200, func(int) (trainer.Feed, error) { return trainer.Feed{"X": x, "Y": x}, nil }) {
		if err != nil {
			return err
		}
		last = result.Loss
	}
	if values, err := session.Values(ctx); err != nil {
		return err
	} else if job.IsChief() {
		fmt.Printf("W %.3f b %.3f loss %.6f\n", values["W"].Data(), values["b"].Data(), last)
	}
	return nil
}
