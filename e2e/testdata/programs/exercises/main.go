// Command exercises multiplies matrices on all workers in two ways, and trains with
// gradients that the program averages itself.
package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/nn"
)

const n = 12 // rows and columns; workers divide it

func main() { trainer.Main(train) }

func train(ctx context.Context, job *trainer.Job) error {
	if err := matrices(ctx, job); err != nil {
		return err
	}
	return gradients(ctx, job)
}

// multiply is a of shape (m, k) times b of shape (k, n).
func multiply(a, b []float64, m, k int) []float64 {
	c := make([]float64, m*n)
	for i := range m {
		for j := range n {
			for l := range k {
				c[i*n+j] += a[i*k+l] * b[l*n+j]
			}
		}
	}
	return c
}

func matrices(ctx context.Context, job *trainer.Job) error {
	a, b := make([]float64, n*n), make([]float64, n*n)
	part := n / job.NumWorkers()
	if job.IsChief() {
		for i := range a {
			a[i], b[i] = float64(i%7), float64(i%5) // whole numbers: every order adds to the same
		}
	}
	mine, c := make([]float64, part*n), make([]float64, n*n)
	if err := job.Scatter(ctx, a, mine, 0); err != nil {
		return err
	}
	if err := job.Broadcast(ctx, b, 0); err != nil {
		return err
	}
	if err := job.Gather(ctx, multiply(mine, b, part, n), c, 0); err != nil {
		return err
	}
	if err := job.Broadcast(ctx, a, 0); err != nil {
		return err
	}
	var columns []float64 // this worker's columns of a
	lo := job.WorkerID() * part
	for i := range n {
		columns = append(columns, a[i*n+lo:i*n+lo+part]...)
	}
	sum := multiply(columns, b[lo*n:(lo+part)*n], n, part)
	if err := job.AllReduce(ctx, sum); err != nil {
		return err
	}
	if want := multiply(a, b, n, n); job.IsChief() {
		fmt.Printf("by rows %t, by reduction %t\n", slices.Equal(c, want), slices.Equal(sum, want))
	}
	return nil
}

// gradients trains on a batch of each worker's own with gradients that a hook averages.
// The trainer averages equal gradients, which changes nothing.
func gradients(ctx context.Context, job *trainer.Job) error {
	build := func(b *nn.Builder) {
		x, y := b.Input("x", 2), b.Input("y", 1)
		b.MSE(b.Dense("out", b.Tanh(b.Dense("hidden", x, 4)), 1), y)
	}
	average := trainer.Hook{Name: "average", Gradient: func(ctx context.Context, g trainer.Gradient) error {
		values := g.Values.([]float32)
		if err := job.AllReduce(ctx, values); err != nil {
			return err
		}
		for i := range values {
			values[i] /= float32(job.NumWorkers())
		}
		return nil
	}}
	session, err := job.Parallelize(ctx, nn.Build(job.Seed(), build), trainer.SGD(0.2),
		trainer.Config{GlobalBatch: 4 * job.NumWorkers(), Hooks: []trainer.Hook{average}})
	if err != nil {
		return err
	}
	from, to := session.Rows()
	feed := func(step int) (trainer.Feed, error) {
		var x, y []float32
		for row := from; row < to; row++ {
			a, b := float32((step+row)%4)/4, float32((step*3+row)%5)/5
			x, y = append(x, a, b), append(y, a-b)
		}
		return trainer.Feed{"x": nn.Batch(x, 2), "y": nn.Batch(y, 1)}, nil
	}
	var last float64
	for result, err := range session.Train(ctx, 200, feed) {
		if err != nil {
			return err
		}
		if err := job.CheckParameters(ctx); err != nil {
			return err
		}
		last = result.Loss
	}
	if job.IsChief() {
		fmt.Printf("learned %t, equal parameters\n", last < 0.05)
	}
	return nil
}
